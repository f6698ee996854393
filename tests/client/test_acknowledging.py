from __future__ import annotations

import pytest

from holdfast.client.acknowledging import Acknowledgements, Settled, ranges_of
from holdfast.client.limits import ClientLimits
from holdfast.wire import Acknowledge, Outcome


class Log:
    """`Acknowledgements` of one session whose consumers 1 and 2 are open."""

    def __init__(self, *, is_transacted: bool = False, limits: ClientLimits | None = None) -> None:
        self.acknowledgements = Acknowledgements(limits=limits or ClientLimits(), is_transacted=is_transacted)
        self.transaction = 5 if is_transacted else 0

    def accept(self, *positions: int, consumer: int = 1) -> None:
        for position in positions:
            self.acknowledgements.accept(consumer, position)

    def due(self, *, is_forced: bool = False) -> list[Acknowledge]:
        frames = self.acknowledgements.due(
            transaction=self.transaction, is_forced=is_forced, open_consumers={1, 2}
        )
        self.acknowledgements.check_invariants()
        return frames


@pytest.mark.parametrize(
    ("positions", "ranges"),
    [
        ([], ()),
        ([5], ((5, 5),)),
        ([3, 1, 2], ((1, 3),)),
        ([0, 1, 4, 6, 5, 9], ((0, 1), (4, 6), (9, 9))),
    ],
)
def test_positions_become_ranges(positions: list[int], ranges: tuple[tuple[int, int], ...]) -> None:
    assert ranges_of(positions) == ranges


def test_the_first_goes_at_once_and_what_follows_is_gathered() -> None:
    log = Log()
    log.accept(1)
    assert log.due() == [Acknowledge(1, 0, Outcome.ACCEPTED, 1, ((1, 1),))]
    log.accept(2, 3, 4, 7)
    assert log.due() == []
    assert log.acknowledgements.confirm(1) == [Settled(1, ((1, 1),))]

    assert log.due() == [Acknowledge(1, 0, Outcome.ACCEPTED, 2, ((2, 4), (7, 7)))]


def test_enough_of_them_do_not_wait() -> None:
    log = Log(limits=ClientLimits(gathered_acknowledgements_max=3))
    log.accept(1)
    log.due()
    log.accept(2, 3, 4)

    assert [frame.ranges for frame in log.due()] == [((2, 4),)]


def test_each_consumer_has_its_own_frame() -> None:
    log = Log()
    log.accept(1, 2)
    log.accept(1, consumer=2)

    assert [(frame.consumer, frame.number) for frame in log.due()] == [(1, 1), (2, 2)]


def test_many_ranges_are_split_over_frames() -> None:
    log = Log()
    log.accept(*range(0, 4000, 2))

    assert [len(frame.ranges) for frame in log.due()] == [1024, 976]


def test_a_return_goes_at_once_behind_what_was_accepted_and_is_not_repeated() -> None:
    log = Log()
    log.accept(1)
    log.due()
    log.accept(2)
    log.acknowledgements.give_back(1, [4, 3])

    assert [(frame.outcome, frame.ranges) for frame in log.due()] == [
        (Outcome.ACCEPTED, ((2, 2),)),
        (Outcome.RETURNED, ((3, 4),)),
    ]
    log.acknowledgements.lost()
    assert [(frame.number, frame.ranges) for frame in log.due()] == [(1, ((1, 1),)), (2, ((2, 2),))]


def test_nothing_goes_for_a_consumer_that_is_not_open() -> None:
    log = Log()
    log.accept(1, consumer=3)

    assert log.due() == []
    assert log.acknowledgements.forget(3)
    assert log.acknowledgements.is_idle


def test_they_have_a_maximum() -> None:
    log = Log(limits=ClientLimits(unconfirmed_acknowledgements_max=2))
    log.accept(1)
    assert log.acknowledgements.has_room
    log.accept(2)

    assert not log.acknowledgements.has_room


def test_a_transaction_keeps_them_until_its_end_and_runs_them_again_under_new_numbers() -> None:
    log = Log(is_transacted=True)
    log.accept(1, 2)
    assert log.due() == []
    assert [(frame.transaction, frame.number) for frame in log.due(is_forced=True)] == [(5, 1)]
    assert log.acknowledgements.confirm(1) == []
    log.acknowledgements.run_again()

    assert [(frame.number, frame.ranges) for frame in log.due(is_forced=True)] == [(2, ((1, 2),))]
    assert log.acknowledgements.drop_all() == [Settled(1, ((1, 2),))]
