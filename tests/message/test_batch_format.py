"""docs/batch-format.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from holdfast.message import Batch, Message, Origin, Severity, encode, layout, properties

DOCUMENT = (Path(__file__).parents[2] / "docs" / "batch-format.md").read_text(encoding="utf-8")

EXAMPLE = [
    Message(body=b"21.5", time_us=1_700_000_000_000_000, source="kiln", group="a"),
    Message(
        body=b"hot!",
        time_us=1_700_000_000_250_000,
        source="kiln",
        severity=Severity.ALERT,
        properties={"limit": 80},
    ),
]


def dumped_bytes() -> bytes:
    """The bytes of the dump, each line of which must stand at the place it names."""
    dumped = bytearray()
    for place, data in re.findall(r"^([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)", DOCUMENT, re.MULTILINE):
        assert int(place, 16) == len(dumped)
        dumped += bytes.fromhex(data)
    return bytes(dumped)


def test_the_example_is_what_is_written() -> None:
    assert encode(EXAMPLE, origin=Origin(site=1, node=2, start=3), first_sequence=7) == dumped_bytes()


def test_the_example_is_what_is_read() -> None:
    batch = Batch.parse(dumped_bytes()).validate()
    assert encode(batch.messages()) == encode(EXAMPLE)
    assert str(batch.id_of(0)) in DOCUMENT


def test_the_columns_are_those_of_the_layout() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (\w+) \| (\w+) \|", DOCUMENT, re.MULTILINE)
    assert [(int(bit), name) for bit, name, _, _ in rows] == list(enumerate(layout.COLUMN_NAMES))
    defaults = {name: int(default) for _, name, _, default in rows if default != "empty"}
    assert defaults == layout.FIXED_DEFAULTS
    assert [name for _, name, kind, _ in rows if kind == "i64"] == list(layout.WIDE_COLUMNS)
    assert [name for _, name, kind, _ in rows if kind == "u8"] == list(layout.NARROW_COLUMNS)
    assert [name for _, name, kind, _ in rows if kind == "text"] == list(layout.TEXT_COLUMNS)


def test_the_defaults_are_those_of_a_message() -> None:
    assert {name: getattr(Message(), name) for name in layout.FIXED_COLUMNS} == layout.FIXED_DEFAULTS


def test_the_limits_are_those_of_the_code() -> None:
    limits = dict(re.findall(r"^\| `([A-Z_]+_MAX)` \| (\d+) \|", DOCUMENT, re.MULTILINE))
    assert len(limits) == 6
    for name, value in limits.items():
        assert int(value) == getattr(layout, name, None) or int(value) == getattr(properties, name)
