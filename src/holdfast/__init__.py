"""Holdfast: a message system that never loses a confirmed message."""

__version__ = "0.1.0.dev0"
