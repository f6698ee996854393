"""The limits: each rule refuses what breaks it, and the reserve is the formula that it is said to be."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import UsageError
from holdfast.journal.boot import BOOT_EVENT_BYTES_MAX
from holdfast.journal.config import ACKNOWLEDGEMENT_BYTES, MOVE_LIVE_PERCENT_MAX, JournalConfig
from holdfast.journal.format import GROUP_HEADER_BYTES, ORIGIN_LSN_BYTES, record_bytes
from tests.journal.small_journal import SMALL


def changed(**changes: int) -> JournalConfig:
    return msgspec.structs.replace(SMALL, **changes)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"segment_bytes": 64 * 1024 + 8}, "multiple of 512"),
        ({"segment_bytes": 2**32}, "below 4 GiB"),
        ({"record_bytes_max": 0}, "record_bytes_max must be at least"),
        (
            {"record_bytes_max": 64 * 1024, "group_bytes_max": 128 * 1024},
            "does not fit into segment_bytes",
        ),
        ({"group_bytes_max": 8192}, "less group_reserve_bytes"),
        ({"group_reserve_bytes": 31 * 1024}, "less group_reserve_bytes"),
        ({"segments_ahead": 0}, "segments_ahead"),
        ({"held_records_max": 0}, "held_records_max"),
        ({"boot_bytes": 2 * 1024 - 1}, "boot_bytes"),
        ({"segments_max": 5}, "need 6"),
        ({"reserve_acknowledgements": 10_000_000}, "segments_max is 12"),
    ],
)
def test_a_limit_that_cannot_work_is_refused_with_its_name(changes: dict[str, int], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        changed(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"segment_bytes": 64 * 1024 + 512},
        {"segments_max": 6},
        {"segments_ahead": 1},
        {"record_bytes_max": 27 * 1024},
    ],
)
def test_a_limit_at_its_edge_is_taken(changes: dict[str, int]) -> None:
    assert changed(**changes) != SMALL


def test_an_unknown_limit_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"segment_byte": 1}, JournalConfig)


def test_the_defaults_are_good() -> None:
    config = JournalConfig()
    assert config.segments_at_start <= config.segments_max


def test_without_system_events_in_the_reserve_no_event_could_tell_of_a_full_disk() -> None:
    with pytest.raises(UsageError, match="reserve_system_events"):
        changed(reserve_system_events=0)


@pytest.mark.parametrize(
    "name",
    ["reserve_acknowledgements", "reserve_system_events", "group_reserve_bytes", "state_bytes_max"],
)
def test_a_negative_limit_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name):
        changed(**{name: -1})


def test_the_index_has_room_for_messages_beside_the_system_events() -> None:
    with pytest.raises(UsageError, match="held_records_max"):
        changed(held_records_max=4, reserve_system_events=4)


def test_every_event_that_the_boot_section_takes_fits_into_a_record() -> None:
    smallest = changed(record_bytes_max=1024, boot_bytes=2048)
    assert smallest.system_event_bytes_max >= BOOT_EVENT_BYTES_MAX + ORIGIN_LSN_BYTES


def test_a_full_boot_section_fits_into_the_budget_of_system_events_and_into_one_group() -> None:
    with pytest.raises(UsageError, match="boot_bytes"):
        changed(boot_bytes=1024 * 1024)


configs = st.builds(
    changed,
    segment_bytes=st.sampled_from((32 * 1024, 64 * 1024, 1024 * 1024)),
    segments_max=st.just(100_000),
    record_bytes_max=st.integers(2200, 8192),
    reserve_acknowledgements=st.integers(1, 100_000),
    reserve_system_events=st.integers(1, 100),
    boot_bytes=st.just(2048),
)


@given(configs)
def test_the_reserve_holds_all_budgets_whatever_is_wasted_where_a_segment_ends(config: JournalConfig) -> None:
    budgets = (
        config.acknowledgements_budget_bytes + config.moves_budget_bytes + config.system_events_budget_bytes
    )
    assert config.reserve_segments * config.usable_bytes >= budgets
    assert config.segments_at_start == 1 + config.segments_ahead + config.reserve_segments


@given(configs)
def test_each_budget_is_good_for_what_it_promises(config: JournalConfig) -> None:
    one_acknowledgement = record_bytes(16) + GROUP_HEADER_BYTES
    assert one_acknowledgement <= ACKNOWLEDGEMENT_BYTES
    assert config.acknowledgements_budget_bytes >= config.reserve_acknowledgements * one_acknowledgement
    one_event = record_bytes(config.system_event_bytes_max) + GROUP_HEADER_BYTES
    assert config.system_events_budget_bytes >= config.reserve_system_events * one_event
    largest_record = record_bytes(config.record_bytes_max + ORIGIN_LSN_BYTES)
    assert config.moves_budget_bytes >= config.segment_bytes // 4 + largest_record


@given(configs)
def test_the_budget_of_acknowledgements_always_fills_one_segment_of_its_own(config: JournalConfig) -> None:
    """The first segment may be shared with messages; the next is all confirmations, and so it can be freed."""
    assert config.acknowledgements_budget_bytes >= 2 * config.usable_bytes


@given(configs)
def test_the_moves_budget_holds_a_quarter_of_a_segment_of_the_smallest_records(config: JournalConfig) -> None:
    live_records = config.segment_bytes * MOVE_LIVE_PERCENT_MAX // 100 // record_bytes(0)
    assert config.moves_budget_bytes >= live_records * record_bytes(ORIGIN_LSN_BYTES) + GROUP_HEADER_BYTES


@given(configs, st.integers(0, 4096))
def test_a_checkpoint_slot_holds_the_largest_state_that_the_limits_allow(
    config: JournalConfig, state_bytes: int
) -> None:
    config = msgspec.structs.replace(config, state_bytes_max=state_bytes)
    held_bytes = 5 * 8 + config.held_records_max * 20
    assert config.checkpoint_bytes >= 128 + config.segments_max * 32 + held_bytes + state_bytes
