from __future__ import annotations

from holdfast.client.backoff import BACKOFF_S_MAX, BACKOFF_S_MIN, backoff_s


def test_the_wait_doubles_up_to_a_maximum() -> None:
    waits = [backoff_s(attempt, 1.0) for attempt in range(10)]

    assert waits[0] == BACKOFF_S_MIN
    assert waits[1] == 2 * BACKOFF_S_MIN
    assert waits[-1] == BACKOFF_S_MAX
    assert waits == sorted(waits)
    assert backoff_s(1_000_000, 1.0) == BACKOFF_S_MAX


def test_half_of_it_is_left_to_chance() -> None:
    assert backoff_s(3, 0.0) == backoff_s(3, 1.0) / 2
    assert backoff_s(3, 0.0) < backoff_s(3, 0.5) < backoff_s(3, 1.0)
