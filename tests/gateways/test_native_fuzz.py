"""Whatever bytes come in on one connection: no error leaves it, the node stays sound, and others are served."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from holdfast.wire import (
    CLIENT_FRAMES,
    Acknowledge,
    Ask,
    Browse,
    CloseConsumer,
    CloseSession,
    Commit,
    Confirm,
    Credit,
    Declare,
    Frame,
    Hello,
    OpenSession,
    Outcome,
    Ping,
    Rollback,
    Send,
    Subscribe,
    Unsubscribe,
    encode_frame,
)
from tests.gateways.wire_client import ServedNode, WireClient, batch_of, send

Make = Callable[[Random], Frame]
NAMES = ("orders", "events", "x", "", "_LOG", "a b")


def small(random: Random) -> int:
    return random.choice((0, 1, 1, 2, 3, 7, 2**31, 2**32 - 1))


def some_ranges(random: Random) -> tuple[tuple[int, int], ...]:
    firsts = [random.choice((1, 2, 3, 5, 100, 2**62)) for _ in range(random.randint(1, 4))]
    return tuple((first, first + random.choice((0, 1, 3))) for first in firsts)


def some_batch(random: Random) -> bytes:
    batch = bytearray(batch_of(*[bytes(random.randint(0, 50)) for _ in range(random.randint(1, 4))]))
    for _ in range(random.choice((0, 0, 0, 0, 1, 3))):
        batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
    return bytes(batch)


MAKERS: list[Make] = [
    lambda r: Hello(version=r.choice((1, 1, 2)), client="f"),
    lambda r: OpenSession(request=1, session=r.choice(("", "", "0000000100000002")), lifetime_s=r.choice((0, 60))),
    lambda r: CloseSession(request=1),
    lambda r: Declare(request=1, name=r.choice(NAMES), kind=r.choice(("queue", "topic", ""))),
    lambda r: Subscribe(
        request=1, consumer=r.randint(0, 2), destination=r.choice(NAMES), subscription=r.choice(("", "", "s")),
        is_durable=r.random() < 0.5, from_start=r.random() < 0.5, credit=r.choice((0, 1, 5, 1000)),
    ),
    lambda r: CloseConsumer(request=1, consumer=r.randint(0, 2)),
    lambda r: Commit(request=1, transaction=r.randint(1, 3)),
    lambda r: Rollback(request=1, transaction=r.randint(1, 3)),
    lambda r: Browse(request=1, destination=r.choice(NAMES), from_position=small(r), messages_max=small(r)),
    lambda r: Ask(request=1, what=r.choice(("status", "destinations"))),
    lambda r: Unsubscribe(request=1, destination=r.choice(NAMES), subscription=r.choice(("", "s"))),
    lambda r: Send(r.choice((1, 1, 2, 3, 99)), r.choice((0, 0, 0, 1, 2)), r.choice((1, 2, 3, 50)), some_batch(r)),
    lambda r: Acknowledge(
        r.randint(0, 2), r.choice((0, 0, 1)), r.choice(tuple(Outcome)), r.randint(1, 9), some_ranges(r)
    ),
    lambda r: Credit(r.randint(0, 2), small(r)),
    lambda r: Ping(small(r)),
]  # fmt: skip


def check_others(served: ServedNode, other: WireClient, queue: int, sequence: int) -> None:
    """A quiet client on the same node sends, is confirmed, and is not told of any error."""
    other.say((1, send(queue, sequence, b"quiet")))
    assert other.last(Confirm) == Confirm(queue, sequence)
    assert not other.error_codes()
    served.node.journal.check_invariants()


def greeted(served: ServedNode) -> WireClient:
    client = served.connect()
    client.open()
    return client


def test_every_frame_of_a_client_is_among_the_makers() -> None:
    made = {make(Random(1)).frame_type for make in MAKERS}
    assert {kind.name for kind in CLIENT_FRAMES - made} == {"PONG"}


@pytest.mark.parametrize("seed", range(30))
def test_frames_in_any_order_disturb_nobody_else(seed: int) -> None:
    random = Random(seed)
    served = ServedNode()
    other = served.session()
    queue = other.declare("quiet")
    client = greeted(served)
    for sequence in range(1, 60):
        frames = [(random.choice((0, 1, 1, 1, 2)), random.choice(MAKERS)(random)) for _ in range(8)]
        data = b"".join(encode_frame(channel, frame) for channel, frame in frames)
        cut = random.randrange(len(data))
        client.connection.receive(data[:cut])
        if random.random() < 0.5:
            served.turn()
        client.connection.receive(data[cut:])
        if random.random() < 0.1:
            client.connection.lost()
        check_others(served, other, queue, sequence)
        if client.connection.is_closing:
            served.clients.remove(client)
            client = greeted(served)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_bytes_disturb_nobody_else(seed: int) -> None:
    random = Random(1000 + seed)
    served = ServedNode()
    other = served.session()
    queue = other.declare("quiet")
    for sequence in range(1, 40):
        client = served.connect(greet=random.random() < 0.8)
        frames = [(random.randint(0, 2), random.choice(MAKERS)(random)) for _ in range(6)]
        data = bytearray(b"".join(encode_frame(channel, frame) for channel, frame in frames))
        for _ in range(random.randint(1, 6)):
            data[random.randrange(len(data))] = random.randrange(256)
        if random.random() < 0.2:
            data = bytearray(random.randbytes(random.randint(1, 300)))
        client.connection.receive(bytes(data))
        if random.random() < 0.5:
            client.connection.lost()
            served.clients.remove(client)
        check_others(served, other, queue, sequence)


@pytest.mark.soak
def test_many_thousand_conversations_disturb_nobody_else() -> None:
    for seed in range(100, 1100):
        test_frames_in_any_order_disturb_nobody_else(seed)
