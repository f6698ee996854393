"""A network that delays, loses, reorders and cuts, from a seed.

Two services. A `Stream` is what TCP gives: bytes arrive in order, in pieces of any size, after any delay, until
the connection is cut; then each side has received some prefix of what the other sent. `send_datagram` is what UDP
gives: a datagram arrives once, twice, late, out of order, or not at all. A partition holds back everything
between two hosts; streams over it stall until it heals, or are cut.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec

from holdfast.simulation.scheduler import Scheduler

Receive = Callable[[bytes], None]
Closed = Callable[[], None]


class NetworkFaults(msgspec.Struct, frozen=True, kw_only=True):
    delay_us_max: int = 2_000
    datagram_loss: float = 0.05
    datagram_repeat: float = 0.02
    # A piece of a stream is at the most this long, so that frames arrive in parts.
    piece_bytes_max: int = 1_500


class Stream:
    """One side of a connection. `on_bytes` and `on_closed` are set by whoever listens to it."""

    def __init__(self, network: Network, *, host: str, peer_host: str) -> None:
        self._network = network
        self.host = host
        self.peer_host = peer_host
        self.on_bytes: Receive = lambda data: None
        self.on_closed: Closed = lambda: None
        self.is_open = True
        self.peer: Stream
        self._last_arrival_us = 0

    def send(self, data: bytes) -> None:
        """Bytes for the other side. Silently goes nowhere once the connection is cut, as TCP does at first."""
        while data and self.is_open:
            length = self._network.random.randint(1, self._network.faults.piece_bytes_max)
            self._send_piece(data[:length])
            data = data[length:]

    def _send_piece(self, piece: bytes) -> None:
        network, peer = self._network, self.peer
        now_us = network.scheduler.now_us
        delay_us = network.random.randint(1, network.faults.delay_us_max)
        # In order: never before the piece sent last.
        self._last_arrival_us = max(self._last_arrival_us + 1, now_us + delay_us)
        network.scheduler.after(self._last_arrival_us - now_us, lambda: network.arrive(peer, piece))

    def close(self) -> None:
        """Cut the connection: what is still on its way is lost, and the other side learns of it in time."""
        if not self.is_open:
            return
        self.is_open = False
        peer = self.peer
        delay_us = self._network.random.randint(1, self._network.faults.delay_us_max)
        self._network.scheduler.after(delay_us, peer.closed_by_peer)

    def closed_by_peer(self) -> None:
        if self.is_open:
            self.is_open = False
            self.on_closed()


class Network:
    """The hosts, what they listen for, and what lies between them."""

    def __init__(self, scheduler: Scheduler, random: Random, faults: NetworkFaults | None = None) -> None:
        self.scheduler = scheduler
        self.random = random
        self.faults = faults or NetworkFaults()
        self._listeners: dict[str, Callable[[Stream], None]] = {}
        self._datagram_receivers: dict[str, Receive] = {}
        self._partitioned: set[frozenset[str]] = set()
        self._held_back: list[tuple[Stream, bytes]] = []
        self._streams: list[Stream] = []

    # -- streams -----------------------------------------------------------------------------------------

    def listen(self, host: str, accept: Callable[[Stream], None]) -> None:
        self._listeners[host] = accept

    def stop_listening(self, host: str) -> None:
        self._listeners.pop(host, None)

    def connect(self, host: str, peer_host: str) -> Stream | None:
        """A stream to `peer_host`, or None if nobody listens there or it cannot be reached."""
        accept = self._listeners.get(peer_host)
        if accept is None or self.is_partitioned(host, peer_host):
            return None
        near = Stream(self, host=host, peer_host=peer_host)
        far = Stream(self, host=peer_host, peer_host=host)
        near.peer, far.peer = far, near
        self._streams += [near, far]
        accept(far)
        return near

    def arrive(self, stream: Stream, piece: bytes) -> None:
        """A piece reaches its side of the stream, unless the connection was cut on its way."""
        if not stream.is_open or not stream.peer.is_open:
            return
        if self.is_partitioned(stream.host, stream.peer_host) or any(
            held is stream for held, _ in self._held_back
        ):
            self._held_back.append((stream, piece))
        else:
            stream.on_bytes(piece)

    def cut(self, host: str) -> None:
        """Cut every connection of a host: its process died, or its cable did."""
        for stream in self._streams:
            if stream.host == host and stream.is_open:
                stream.close()
        self._streams = [stream for stream in self._streams if stream.is_open or stream.peer.is_open]

    # -- partitions --------------------------------------------------------------------------------------

    def is_partitioned(self, host: str, other: str) -> bool:
        return frozenset((host, other)) in self._partitioned

    def partition(self, host: str, other: str) -> None:
        self._partitioned.add(frozenset((host, other)))

    def heal(self) -> None:
        """Everybody reaches everybody again; streams that were not cut go on where they stalled."""
        self._partitioned.clear()
        held, self._held_back = self._held_back, []
        for stream, piece in held:
            self.arrive(stream, piece)

    # -- datagrams ---------------------------------------------------------------------------------------

    def receive_datagrams(self, host: str, receive: Receive) -> None:
        self._datagram_receivers[host] = receive

    def send_datagram(self, host: str, peer_host: str, data: bytes) -> None:
        copies = 1
        if self.random.random() < self.faults.datagram_loss:
            copies = 0
        elif self.random.random() < self.faults.datagram_repeat:
            copies = 2
        for _ in range(copies):
            delay_us = self.random.randint(1, self.faults.delay_us_max)
            self.scheduler.after(delay_us, lambda: self._arrive_datagram(host, peer_host, data))

    def _arrive_datagram(self, host: str, peer_host: str, data: bytes) -> None:
        receive = self._datagram_receivers.get(peer_host)
        if receive is not None and not self.is_partitioned(host, peer_host):
            receive(data)
