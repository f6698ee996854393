"""Gateways: each maps one protocol onto the message manager. No input or output: a shell brings the bytes."""
