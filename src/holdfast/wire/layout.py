"""Where everything stands in a frame, and the limits. Little-endian; `docs/protocol.md` has the long form.

header, 8 bytes
| offset | type | field                                              |
| 0      | u32  | length of all that follows this field: 4 + payload |
| 4      | u8   | type, a `FrameType`                                |
| 5      | u8   | flags = 0                                          |
| 6      | u16  | channel: 0 = the connection, else a session        |

payload of a control frame: one msgpack map; a field that has its default is left out
payload of a binary frame, where every u64 but that of Ping and Pong is below 2^63
| Send         | u32 destination, u32 transaction, u64 first sequence, batch                           |
| Confirm      | u32 destination, u32 0, u64 sequence                                                  |
| Acknowledge  | u32 consumer, u32 transaction, u32 outcome, u32 0, u64 number, then                   |
|              | n x (u64 first position, u64 last position)                                           |
| Acknowledged | u64 number                                                                            |
| Credit       | u32 consumer, u32 messages                                                            |
| Deliver      | u32 consumer, u32 generation, u32 redeliveries, u32 0, u64 first position, batch      |
| Ping, Pong   | u64 token                                                                             |
| Browsed      | u32 request, u32 is_last, u64 first position, batch                                   |
| Flow         | u32 destination, u32 is_blocked                                                       |
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

PROTOCOL_VERSION: Final = 1
PORT: Final = 7250

HEADER_BYTES: Final = 8
FRAME_BYTES_MAX: Final = 16 << 20
"""A whole frame with its header: what a peer can make us hold before it is complete. A server may allow less."""
SEND_BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - 32
"""A Deliver has 32 bytes before its batch, more than a Send: what is sent must fit the frame that delivers it."""
FRAME_BYTES_MIN: Final = 1024
"""The least that a server may allow: every control frame of ordinary names fits."""
CHANNEL_MAX: Final = 0xFFFF
U32_MAX: Final = 0xFFFF_FFFF
NUMBER_MAX: Final = (1 << 63) - 1
"""Sequences, positions and the like: so a language without unsigned numbers can hold them."""
TEXT_CHARACTERS_MAX: Final = 4096
"""Any text of a request. Rules for names are stricter and their errors kinder: this bounds what is decoded."""
ACKNOWLEDGE_RANGES_MAX: Final = 65_535
"""1 MiB of ranges, which is several times that in memory. A client splits what is more."""

# Type and flags are taken as one number: flags that are not 0 make a type that does not exist.
# Numbers that must be below 2^63 are taken as signed, so that one comparison finds those that are not.
HEADER: Final = struct.Struct("<IHH")
SEND: Final = struct.Struct("<IIq")
CONFIRM: Final = struct.Struct("<IIq")
ACKNOWLEDGE: Final = struct.Struct("<IIIIq")
RANGE: Final = struct.Struct("<qq")
ACKNOWLEDGED: Final = struct.Struct("<q")
CREDIT: Final = struct.Struct("<II")
DELIVER: Final = struct.Struct("<IIIIq")
PING: Final = struct.Struct("<Q")
BROWSED: Final = struct.Struct("<IIq")
FLOW: Final = struct.Struct("<II")


class FrameType(IntEnum):
    """The type byte of the header."""

    HELLO = 1
    WELCOME = 2
    OPEN_SESSION = 3
    SESSION_OPENED = 4
    CLOSE_SESSION = 5
    DONE = 6
    DECLARE = 7
    SUBSCRIBE = 9
    ERROR = 10
    CLOSE_CONSUMER = 11
    COMMIT = 13
    ROLLBACK = 15
    BROWSE = 17
    ASK = 19
    UNSUBSCRIBE = 21
    SEND = 32
    CONFIRM = 33
    ACKNOWLEDGE = 34
    ACKNOWLEDGED = 35
    CREDIT = 36
    DELIVER = 37
    PING = 38
    PONG = 39
    BROWSED = 41
    FLOW = 43


# ---- who may send what, and where --------------------------------------------------------------------------
BOTH_WAYS: Final = frozenset({FrameType.PING, FrameType.PONG})
SERVER_FRAMES: Final = BOTH_WAYS | {
    FrameType.WELCOME,
    FrameType.SESSION_OPENED,
    FrameType.DONE,
    FrameType.ERROR,
    FrameType.CONFIRM,
    FrameType.ACKNOWLEDGED,
    FrameType.DELIVER,
    FrameType.BROWSED,
    FrameType.FLOW,
}
"""What a server sends."""
CLIENT_FRAMES: Final = frozenset(FrameType) - SERVER_FRAMES | BOTH_WAYS
"""What a client sends."""
CONNECTION_FRAMES: Final = frozenset({FrameType.HELLO, FrameType.WELCOME})
"""On channel 0 only."""
SESSION_FRAMES: Final = frozenset(
    {
        FrameType.OPEN_SESSION,
        FrameType.SESSION_OPENED,
        FrameType.CLOSE_SESSION,
        FrameType.SUBSCRIBE,
        FrameType.CLOSE_CONSUMER,
        FrameType.COMMIT,
        FrameType.ROLLBACK,
        FrameType.SEND,
        FrameType.CONFIRM,
        FrameType.ACKNOWLEDGE,
        FrameType.ACKNOWLEDGED,
        FrameType.CREDIT,
        FrameType.DELIVER,
    }
)
"""On the channel of a session only. All others may stand on either."""


class Outcome(IntEnum):
    """What a consumer made of messages."""

    ACCEPTED = 0
    RETURNED = 1
