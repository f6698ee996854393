"""Destinations: queues and topics, and the subscriptions through which their messages are confirmed."""
