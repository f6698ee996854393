"""The server: the shell that gives a node its disk, its sockets, its clock and its signals."""

from holdfast.server.configuration import (
    DEFAULT_PORT,
    Configuration,
    ListenConfiguration,
    NodeConfiguration,
    read_configuration,
)
from holdfast.server.process import EXIT_FAILED, Ready, run_server

__all__ = [
    "DEFAULT_PORT",
    "EXIT_FAILED",
    "Configuration",
    "ListenConfiguration",
    "NodeConfiguration",
    "Ready",
    "read_configuration",
    "run_server",
]
