"""The `holdfast` command."""

from holdfast.cli.main import main

__all__ = ["main"]
