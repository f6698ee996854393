"""One Browse under way: batch after batch, from memory or from the disk, as fast as the client reads.

A queue shows what is not confirmed yet, whoever has it now; a topic all that it holds. One batch at a time is asked
for, so that a browse of a long queue holds up nobody.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.destinations.destination import Destination, HeldBatch
from holdfast.gateways.native.output import Output
from holdfast.message import Batch, slice_rows
from holdfast.node.distributor import Distributor, Parts
from holdfast.wire import Browse

# The most rows in one frame, so that a large batch does not come at once.
FRAME_ROWS_MAX = 1024


class _Wanted(NamedTuple):
    batch: HeldBatch
    first: int
    last: int


class Browsing:
    """`go_on` until `is_done`: when it is made, when a read has ended, and when the client has read."""

    def __init__(
        self, distributor: Distributor, output: Output, channel: int, destination: Destination, frame: Browse
    ) -> None:
        self._distributor = distributor
        self._output = output
        self._channel = channel
        self._destination = destination
        self._request = frame.request
        self._position = max(1, frame.from_position)
        self._left = frame.messages_max
        self._is_reading = False
        self._is_running = False
        self.is_done = False

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.is_done = True

    def go_on(self) -> None:
        """Send what is there, until something must be waited for."""
        if self._is_running:
            return
        self._is_running = True
        while not (self.is_done or self._is_reading or self._output.is_full):
            self._step()
        self._is_running = False

    def _step(self) -> None:
        wanted = self._next() if self._left else None
        if wanted is None:
            self.is_done = True
            self._output.browsed(self._channel, request=self._request, is_last=True, first_position=0)
            return
        self._is_reading = True
        self._distributor.want(wanted.batch.lsn, lambda parts: self._arrived(wanted, parts))

    def _arrived(self, wanted: _Wanted, parts: Parts | None) -> None:
        self._is_reading = False
        if self.is_done:
            return
        self._position = wanted.last + 1
        if parts is not None:  # otherwise it was confirmed meanwhile
            self._left -= wanted.last - wanted.first + 1
            self._send(wanted, parts)
        self.go_on()

    def _send(self, wanted: _Wanted, parts: Parts) -> None:
        batch = wanted.batch
        if (wanted.first, wanted.last) != (batch.first, batch.last):
            whole = Batch.parse(b"".join(parts))
            parts = (slice_rows(whole, wanted.first - batch.first, wanted.last - batch.first + 1),)
        self._output.browsed(
            self._channel,
            request=self._request,
            is_last=False,
            first_position=wanted.first,
            batch=parts,
        )

    def _next(self) -> _Wanted | None:
        """The next run of rows to show."""
        destination = self._destination
        shared = destination.subscriptions.get(destination.number)  # that of a queue
        position = self._position
        while True:
            if shared is not None:
                position = shared.done.first_missing(max(position, shared.cursor))
            held = destination.next_held(position)
            if held >= destination.next_position:
                return None
            if held == position or shared is None or held not in shared.done:
                break
            position = held
        batch = destination.batch_at(held)
        assert batch is not None, "a held position has its batch"
        last = min(batch.last, held + min(self._left, FRAME_ROWS_MAX) - 1)
        confirmed = None if shared is None else shared.done.first_present(held, last)
        return _Wanted(batch, held, last if confirmed is None else confirmed - 1)
