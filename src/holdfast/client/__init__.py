"""The client: one sans-IO core, and the shells `aio` and `sync` around it with the same names.

Nothing is imported here, so that a program that only sends pays for nothing else.
"""
