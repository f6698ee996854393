"""Bytes to frames, in whatever pieces they come.

A frame that lies within one piece is read in place: its batch is a view of the bytes that were fed. Only a frame
that is spread over pieces is gathered first, and only that frame, so what is held never exceeds one frame. A frame
is refused for its length, type or channel as soon as its header is there.

All that can be said of a frame by itself is checked: its size, type, direction and kind of channel here, the types
and ranges of its fields in `payloads`. What a batch holds is left to `Batch.parse`, and what may come when to the
sessions.
"""

from __future__ import annotations

from typing import Final, NoReturn

from holdfast.errors import ProtocolError, UsageError
from holdfast.wire.frames import Buffer, Frame
from holdfast.wire.layout import (
    CONNECTION_FRAMES,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MIN,
    HEADER,
    HEADER_BYTES,
    SESSION_FRAMES,
    FrameType,
)
from holdfast.wire.payloads import READERS

ALL_FRAMES: Final = frozenset(FrameType)
_LENGTH_BYTES = 4  # the length field, which does not count itself
_LENGTH_MIN = HEADER_BYTES - _LENGTH_BYTES


class FrameDecoder:
    """The frames that one peer sends. `accepts` is what this peer may send: `CLIENT_FRAMES`, say, in a server."""

    __slots__ = ("_accepts", "_fault", "_length_max", "_on_connection", "_on_session", "_pending")

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, *, accepts: frozenset[FrameType] = ALL_FRAMES
    ) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._accepts = accepts
        self._on_connection = {int(kind): READERS[kind] for kind in accepts - SESSION_FRAMES}
        self._on_session = {int(kind): READERS[kind] for kind in accepts - CONNECTION_FRAMES}
        self._pending = bytearray()  # the beginning of one frame; at most frame_bytes_max
        self._fault: ProtocolError | None = None

    @property
    def frame_bytes_max(self) -> int:
        """The longest frame that is taken, with its header. May be set: less for a peer not yet known, for one."""
        return self._length_max + _LENGTH_BYTES

    @frame_bytes_max.setter
    def frame_bytes_max(self, value: int) -> None:
        if not FRAME_BYTES_MIN <= value <= FRAME_BYTES_MAX:
            raise UsageError(f"frame_bytes_max: {value} is not {FRAME_BYTES_MIN}..{FRAME_BYTES_MAX}")
        self._length_max = value - _LENGTH_BYTES

    @property
    def pending_bytes(self) -> int:
        """What is held of a frame that is not complete. Not 0 at the end of a connection: it was cut off."""
        return len(self._pending)

    def feed(self, data: Buffer) -> list[tuple[int, Frame]]:
        """The frames that `data` completes, each with its channel.

        Batches borrow `data`, which therefore must not change afterwards; who keeps a small one for long copies
        it, or keeps all of `data` alive. Raises ProtocolError for whatever is wrong, and again for all that comes
        after: frames of `data` that stood before the fault are dropped too, as if the connection had ended a
        little earlier.
        """
        if self._fault is not None:
            raise ProtocolError(str(self._fault), reason_code=self._fault.reason_code)
        try:
            return self._read(memoryview(data))
        except ProtocolError as fault:
            self._fault = fault
            self._pending = bytearray()
            raise

    def _read(self, view: memoryview) -> list[tuple[int, Frame]]:
        frames: list[tuple[int, Frame]] = []
        position = self._gather(view, frames) if self._pending else 0
        end = len(view)
        length_max, on_session, on_connection = self._length_max, self._on_session, self._on_connection
        while end - position >= HEADER_BYTES:
            length, kind, channel = HEADER.unpack_from(view, position)
            read = (on_session if channel else on_connection).get(kind)
            if read is None or not _LENGTH_MIN <= length <= length_max:
                self._refuse(length, kind, channel)
            frame_end = position + _LENGTH_BYTES + length
            if frame_end > end:
                break
            frames.append((channel, read(view, position + HEADER_BYTES, frame_end)))
            position = frame_end
        if position < end:
            self._pending += view[position:]
        return frames

    def _gather(self, view: memoryview, frames: list[tuple[int, Frame]]) -> int:
        """Take what completes the pending frame. How many bytes of `view` were taken."""
        pending = self._pending
        taken = max(0, HEADER_BYTES - len(pending))
        pending += view[:taken]
        if len(pending) < HEADER_BYTES:
            return len(view)
        length: int
        length, kind, channel = HEADER.unpack_from(pending)
        read = (self._on_session if channel else self._on_connection).get(kind)
        if read is None or not _LENGTH_MIN <= length <= self._length_max:
            self._refuse(length, kind, channel)
        frame_end = _LENGTH_BYTES + length
        missing = frame_end - len(pending)
        pending += view[taken : taken + missing]
        if len(pending) < frame_end:
            return len(view)
        self._pending = bytearray()  # the batch now borrows the other one
        frames.append((channel, read(memoryview(pending).toreadonly(), HEADER_BYTES, frame_end)))
        return taken + missing

    def _refuse(self, length: int, kind: int, channel: int) -> NoReturn:
        """Say what is wrong with a header."""
        if length < _LENGTH_MIN:
            raise ProtocolError(f"a frame of length {length}", reason_code="protocol.malformed")
        flags, type_number = divmod(kind, 256)
        if flags:
            raise ProtocolError(f"flags {flags:#04x}: there are none yet", reason_code="protocol.malformed")
        if length > self._length_max:
            what = f"a frame of {length + _LENGTH_BYTES} bytes is above the maximum of {self.frame_bytes_max}"
            raise ProtocolError(what, reason_code="limit.frame")
        if type_number not in READERS:
            what = f"frame type {type_number} is not known"
        elif type_number not in self._accepts:
            what = f"{FrameType(type_number).name}: the wrong side sends it"
        else:
            what = f"{FrameType(type_number).name}: it does not belong on channel {channel}"
        raise ProtocolError(what, reason_code="protocol.unexpected")
