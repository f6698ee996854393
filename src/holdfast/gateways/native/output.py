"""What goes out on one connection: encoded frames, gathered until the shell takes them.

`is_full` is what keeps it bounded: then there are no more deliveries, and no more requests are looked at. Only what
was under way before (confirmations, answers) still comes, and that is bounded by what was let in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import LimitExceeded
from holdfast.node.distributor import Parts
from holdfast.wire import Buffer, Done, Error, Frame, browsed_buffers, deliver_buffers, encode_frame


class Output:
    """`has_output` is called when there is something to take, once until it is taken."""

    def __init__(self, *, bytes_max: int, has_output: Callable[[], None]) -> None:
        self._bytes_max = bytes_max
        self._has_output = has_output
        self._buffers: list[Buffer] = []
        self._size_bytes = 0
        self._is_closed = False
        self.is_congested = False
        # Requests that are under way. Each ends in `done` or `failed`.
        self.awaited = 0

    @property
    def is_full(self) -> bool:
        return self.is_congested or self._size_bytes >= self._bytes_max

    def close(self) -> None:
        """What comes from now on has nobody to read it."""
        self._is_closed = True

    def take(self) -> list[Buffer]:
        buffers, self._buffers = self._buffers, []
        self._size_bytes = 0
        return buffers

    # -- frames ------------------------------------------------------------------------------------------

    def put(self, channel: int, frame: Frame) -> None:
        self._add([encode_frame(channel, frame)])

    def done(self, channel: int, request: int, result: dict[str, Any]) -> None:
        """Answer a request."""
        self.awaited -= 1
        try:
            self.put(channel, Done(request=request, result=result))
        except LimitExceeded as error:
            self.put(channel, Error(request=request, code="limit.frame", message=f"the answer: {error}"))

    def deliver(
        self,
        channel: int,
        *,
        consumer: int,
        generation: int,
        redeliveries: int,
        first_position: int,
        batch: Parts,
    ) -> None:
        self._add(
            deliver_buffers(
                channel,
                consumer=consumer,
                generation=generation,
                redeliveries=redeliveries,
                first_position=first_position,
                batch=batch,
            )
        )

    def browsed(
        self, channel: int, *, request: int, is_last: bool, first_position: int, batch: Parts = ()
    ) -> None:
        self._add(
            browsed_buffers(
                channel, request=request, is_last=is_last, first_position=first_position, batch=batch
            )
        )

    def _add(self, buffers: list[Buffer]) -> None:
        if self._is_closed:
            return
        if not self._buffers:
            self._has_output()
        self._buffers += buffers
        self._size_bytes += sum(map(len, buffers))
