from __future__ import annotations

from random import Random

import pytest

from holdfast.simulation.network import Network, NetworkFaults, Stream
from holdfast.simulation.scheduler import Scheduler


class Server:
    """Collects what arrives at it."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.received = bytearray()
        self.closed = 0

    def accept(self, stream: Stream) -> None:
        self.streams.append(stream)
        stream.on_bytes = self.received.extend
        stream.on_closed = self._closed

    def _closed(self) -> None:
        self.closed += 1


def make(seed: int = 1, faults: NetworkFaults | None = None) -> tuple[Scheduler, Network, Server]:
    scheduler = Scheduler(Random(seed))
    network = Network(scheduler, Random(seed + 1), faults)
    server = Server()
    network.listen("server", server.accept)
    return scheduler, network, server


def connected(network: Network) -> Stream:
    stream = network.connect("client", "server")
    assert stream is not None
    return stream


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_delivers_everything_in_order(seed: int) -> None:
    scheduler, network, server = make(seed)
    stream = connected(network)
    sent = bytes(range(256)) * 40
    for start in range(0, len(sent), 700):
        stream.send(sent[start : start + 700])
    scheduler.run(1_000_000)
    assert bytes(server.received) == sent


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_stream_has_delivered_a_prefix(seed: int) -> None:
    scheduler, network, server = make(seed)
    stream = connected(network)
    sent = bytes(range(256)) * 200
    stream.send(sent)
    scheduler.run(Random(seed).randint(1, 400))
    network.cut("client")
    scheduler.run(1_000_000)
    assert sent.startswith(bytes(server.received))
    assert len(server.received) < len(sent)
    assert server.closed == 1


def test_nobody_connects_where_nobody_listens() -> None:
    _, network, _ = make()
    assert network.connect("client", "nowhere") is None
    network.stop_listening("server")
    assert network.connect("client", "server") is None


def test_a_partition_stalls_a_stream_and_healing_lets_it_go_on_in_order() -> None:
    scheduler, network, server = make()
    stream = connected(network)
    sent = bytes(range(256)) * 30
    stream.send(sent[:3_000])
    network.partition("client", "server")
    scheduler.run(50_000)
    assert not server.received
    assert network.connect("client", "server") is None
    stream.send(sent[3_000:])
    network.heal()
    scheduler.run(1_000_000)
    assert bytes(server.received) == sent


def test_datagrams_are_lost_repeated_and_reordered() -> None:
    scheduler, network, _ = make(faults=NetworkFaults(datagram_loss=0.2, datagram_repeat=0.2))
    received: list[int] = []
    network.receive_datagrams("server", lambda data: received.append(data[0]))
    for number in range(200):
        network.send_datagram("client", "server", bytes((number,)))
    scheduler.run(1_000_000)
    assert len(set(received)) < 200
    assert len(received) > len(set(received))
    assert received != sorted(received)
