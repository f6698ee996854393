"""A held record that cannot be read holds up its own queue, is reported, and is never skipped."""

from __future__ import annotations

import pytest

from holdfast.errors import JournalCorrupt
from holdfast.wire import Browse, Browsed, Deliver
from tests.gateways.wire_client import ServedNode, send


def test_a_damaged_record_is_not_delivered_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.node.distributor.CACHE_BYTES_MAX", 60)
    served = ServedNode()
    node = served.node
    client = served.session()
    bad, good = client.declare("bad"), client.declare("good")
    lsn = node.journal.next_lsn
    client.say((1, send(bad, 1, b"damaged")))
    client.say((1, send(bad, 2, b"behind it")), (1, send(good, 1, b"whole")))
    segment, offset, size = node.journal.locate(lsn)
    node.storage.write(segment.name, offset + size - 9, b"\xff")

    with pytest.raises(JournalCorrupt, match="a held record is damaged"):
        client.consume("bad")
    for _ in range(3):  # it is not read again and again
        served.turn()
    assert not client.all(Deliver)
    client.consume("good", consumer=2)
    assert client.bodies() == [b"whole"]
    client.request(0, Browse, destination="bad")  # a person may look at what is behind it
    assert [frame.first_position for frame in client.all(Browsed)] == [2, 0]
