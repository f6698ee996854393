"""Every maximum of the client, by name and with its reason. All of them hold for one session unless said
otherwise.
"""

from __future__ import annotations

from msgspec import Struct

from holdfast.errors import UsageError


class ClientLimits(Struct, frozen=True, kw_only=True):
    """What a program may change in `connect(..., limits=ClientLimits(...))`."""

    unconfirmed_messages_max: int = 100_000
    """Sent and not yet confirmed: they are kept in memory, to be sent again after a resume. Then `send` waits."""
    unconfirmed_bytes_max: int = 64 << 20
    """The same, in bytes of batches."""
    gathered_messages_max: int = 1000
    """Single sends that wait for an earlier batch of their destination; then they go without waiting for it."""
    gathered_bytes_max: int = 256 << 10
    """The same, in bytes: larger batches save nothing more."""
    unconfirmed_acknowledgements_max: int = 100_000
    """Acknowledged messages whose acknowledgement is not confirmed. Then `acknowledge` waits."""
    gathered_acknowledgements_max: int = 1000
    """Acknowledgements that wait for an earlier one; then they go without waiting for it."""
    sessions_max: int = 256
    """Sessions of one connection."""
    consumers_max: int = 1000
    """Consumers of one session."""
    requests_max: int = 10_000
    """Requests without an answer. Then a call fails."""
    transaction_runs_max: int = 5
    """How often a transaction is run while the connection holds. A server that aborts it each time has a reason."""
    ping_interval_s: float = 10.0
    """After so much silence the peer is asked whether it is there."""
    silence_s_max: float = 30.0
    """After so much silence the connection is taken for lost."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise UsageError(f"{name}: must be above 0")


CREDIT_DEFAULT = 1000
"""Messages that a consumer may have on their way, or waiting to be handed out."""
CREDIT_MAX = 100_000
"""Messages that wait are memory, here and in the server, which allows no more."""
ACKNOWLEDGE_RANGES_MAX = 1024
"""Ranges in one frame: 16 KiB, which is written at once."""
BROWSE_MESSAGES_MAX = 10_000
"""Messages that one `browse` returns: they are all held in memory. Browse on from the last position for more."""
