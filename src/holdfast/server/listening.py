"""The socket that clients connect to.

It listens before the journal is read: who connects meanwhile waits for the greeting instead of being refused
(decision 13). And a port that is taken is noticed before anything is touched.
"""

from __future__ import annotations

import errno
import socket

from holdfast.errors import UsageError
from holdfast.server.configuration import ListenConfiguration

# Connections that the kernel takes while the node recovers, or is busy.
BACKLOG_MAX = 512


def open_listener(listen: ListenConfiguration) -> socket.socket:
    """Raises `UsageError` if the address cannot be had."""
    listen.check()
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A port is free again at once after a restart, whatever is left of old connections.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listen.host, listen.port))
        listener.listen(BACKLOG_MAX)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot listen on {listen.host} port {listen.port}: {_advice(error)}") from error
    return listener


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def _advice(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            "another program has this port, perhaps another Holdfast. Nothing was started. Stop that one, or choose "
            "another port (--port; 0 takes any that is free)."
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return "it is not permitted to this user. Nothing was started. Choose a port above 1023."
    return f"{error.strerror or error}. Nothing was started. Check listen.host and listen.port."
