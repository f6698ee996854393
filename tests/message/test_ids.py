"""Message ids: order, forms, and uniqueness over restarts (C15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import LimitExceeded, UsageError
from holdfast.message import IdSource, MessageId, Origin
from holdfast.message.ids import ID_TEXT_CHARACTERS, SEQUENCE_MAX

origins = st.builds(
    Origin, site=st.integers(0, 0xFFFF), node=st.integers(0, 0xFFFF), start=st.integers(1, 0xFFFF_FFFF)
)
message_ids = st.builds(MessageId, origins, st.integers(0, SEQUENCE_MAX))


class GivesIds(Protocol):
    @property
    def origin(self) -> Origin: ...
    def take(self, count: int) -> int: ...


def check_ids_over_restarts(start_node: Callable[[int], GivesIds]) -> None:
    """Run a node several times, each time from scratch but for its start counter: no id twice, all in order."""
    seen: list[MessageId] = []
    for start in range(1, 6):
        source = start_node(start)
        for count in (1, 3, 256, 1):
            first = source.take(count)
            seen += [MessageId(source.origin, first + row) for row in range(count)]
    assert len(set(seen)) == len(seen), "an id was given twice"
    assert seen == sorted(seen), "a later id is lower"
    assert [str(identity) for identity in seen] == sorted(str(identity) for identity in seen)
    assert [identity.to_bytes() for identity in seen] == sorted(identity.to_bytes() for identity in seen)


@pytest.mark.spec("C15")
def test_ids_are_unique_and_ordered_over_restarts() -> None:
    check_ids_over_restarts(lambda start: IdSource(Origin(site=1, node=1, start=start)))


@pytest.mark.control("C15")
def test_a_source_that_forgets_its_start_counter_is_found_out() -> None:
    with pytest.raises(AssertionError, match="an id was given twice"):
        check_ids_over_restarts(lambda start: IdSource(Origin(site=1, node=1, start=1)))


@pytest.mark.control("C15")
def test_a_start_counter_that_runs_backwards_is_found_out() -> None:
    with pytest.raises(AssertionError, match="a later id is lower"):
        check_ids_over_restarts(lambda start: IdSource(Origin(site=1, node=1, start=100 - start)))


@pytest.mark.spec("C15")
@given(st.lists(message_ids, max_size=20))
def test_bytes_and_text_sort_as_the_ids_do(identities: list[MessageId]) -> None:
    ordered = sorted(identities)
    assert sorted(identities, key=MessageId.to_bytes) == ordered
    assert sorted(identities, key=str) == ordered


@given(message_ids)
def test_bytes_and_text_lead_back_to_the_id(identity: MessageId) -> None:
    assert MessageId.from_bytes(identity.to_bytes()) == identity
    assert MessageId.parse(str(identity)) == identity
    assert Origin.from_packed(identity.origin.packed) == identity.origin
    assert len(str(identity)) == ID_TEXT_CHARACTERS


def test_known_ids_have_known_forms() -> None:
    identity = MessageId(Origin(site=1, node=2, start=3), 255)
    assert identity.to_bytes().hex() == "000100020000000300000000000000ff"
    assert str(identity) == "0001000200000003-00000000000000ff"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1-2",
        "0001000200000003-00000000000000FF",
        "0001000200000003-00000000000000ff ",
        "0001000200000003-00000000000000ff\n",
        "000100020000000300000000000000ff",
        "0001000200000003_00000000000000ff",
        "000100020000000٣-00000000000000ff",
        "0000000000000000-00000000000000ff",
        "x" * 100_000,
    ],
)
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        MessageId.parse(text)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize("packed", [b"", b"x" * 15, b"x" * 17, bytes(16)])
def test_bytes_that_are_no_id_are_refused(packed: bytes) -> None:
    with pytest.raises(UsageError):
        MessageId.from_bytes(packed)


@pytest.mark.parametrize(
    ("site", "node", "start"),
    [(0, 0, 0), (-1, 0, 1), (0x10000, 0, 1), (0, 0x10000, 1), (0, 0, 2**32), (0, 1.0, 1), (True, 1, 1)],
)
def test_an_origin_out_of_range_is_refused(site: int, node: int, start: int) -> None:
    with pytest.raises(UsageError):
        Origin(site=site, node=node, start=start)


def test_a_packed_origin_out_of_range_is_refused() -> None:
    for packed in (0, -1, 2**64, 10**5000):
        with pytest.raises(UsageError):
            Origin.from_packed(packed)


def test_a_sequence_out_of_range_has_no_bytes() -> None:
    for sequence in (-1, 2**64, 10**5000):
        with pytest.raises(UsageError, match="sequence"):
            MessageId(Origin(site=1, node=1, start=1), sequence).to_bytes()


def test_ranges_follow_one_another_without_a_gap() -> None:
    source = IdSource(Origin(site=0, node=1, start=1), next_sequence=10)
    assert [source.take(5), source.take(1), source.take(2)] == [10, 15, 16]
    assert source.next_sequence == 18


@pytest.mark.parametrize("count", [0, -1])
def test_a_range_of_none_is_refused(count: int) -> None:
    with pytest.raises(UsageError):
        IdSource(Origin(site=0, node=1, start=1)).take(count)


def test_a_source_that_is_used_up_gives_nothing_rather_than_an_old_id() -> None:
    source = IdSource(Origin(site=0, node=1, start=1), next_sequence=SEQUENCE_MAX - 1)
    assert source.take(1) == SEQUENCE_MAX - 1
    with pytest.raises(LimitExceeded):
        source.take(1)
    assert source.next_sequence == SEQUENCE_MAX
