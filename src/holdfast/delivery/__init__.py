"""Delivery: the distribution engine. Who gets what, when, and what comes back."""
