"""Messages to test with: generated ones, and one with every field given."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from hypothesis import strategies as st

from holdfast.message import Message, Origin, PropertyValue, Severity

ORIGIN = Origin(site=1, node=2, start=3)

EVERY_FIELD = Message(
    body=b"\x00body\xff",
    time_us=1_700_000_000_000_001,
    source="sensor-7",
    type="temperature",
    severity=Severity.ALERT,
    correlation_id="order-42",
    reply_to="answers",
    group="unité",
    content_type="text/plain",
    priority=9,
    expiration_us=1_800_000_000_000_000,
    deliver_at_us=1_750_000_000_000_000,
    properties={"count": 1, "valid": True, "ratio": 1.0, "unit": "°C", "raw": b"\xff", "off": False},
)

times = st.just(0) | st.integers(0, 2**63 - 1)
# Few different values, so that rows are often all the same, or all the default.
texts = st.sampled_from(["", "", "a", "red", "größe", "日本", "\U0001f600"]) | st.text(max_size=8)
property_values: st.SearchStrategy[PropertyValue] = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.sampled_from([0, 1, 0.0, 1.0, -0.0])
)
property_maps: st.SearchStrategy[dict[str, PropertyValue]] = st.just({}) | st.dictionaries(
    st.text(min_size=1, max_size=5), property_values, max_size=4
)
messages = st.builds(
    Message,
    body=st.binary(max_size=20),
    time_us=times,
    source=texts,
    type=texts,
    severity=st.sampled_from(Severity),
    correlation_id=texts,
    reply_to=texts,
    group=texts,
    content_type=texts,
    priority=st.integers(0, 9),
    expiration_us=times,
    deliver_at_us=times,
    properties=property_maps,
)
plain_messages = st.builds(Message, body=st.binary(max_size=20), time_us=times)
message_lists = st.one_of(
    st.lists(messages, min_size=1, max_size=12),
    st.lists(plain_messages, min_size=1, max_size=12),
    st.builds(lambda message, count: [message] * count, messages, st.integers(1, 5)),
)


def exact(message: Message, *, with_id: bool = False) -> tuple[object, ...]:
    """A message as something that is equal only to the very same: 1, 1.0 and True differ, and NaN is itself."""
    fields = [
        getattr(message, name) for name in Message.__struct_fields__ if name not in ("properties", "id")
    ]
    properties = [
        (key, type(value), struct.pack("<d", value) if isinstance(value, float) else value)
        for key, value in message.properties.items()
    ]
    kinds = [type(field) for field in fields]
    return (*fields, *kinds, *properties, message.id if with_id else None)


def exact_all(given: Sequence[Message], *, with_id: bool = False) -> list[tuple[object, ...]]:
    return [exact(message, with_id=with_id) for message in given]
