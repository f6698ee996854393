from __future__ import annotations

from random import Random

from holdfast.simulation.scheduler import Scheduler


def test_actions_happen_in_the_order_of_their_time() -> None:
    scheduler = Scheduler(Random(1))
    seen: list[int] = []
    for delay_us in (30, 10, 20):
        scheduler.after(delay_us, lambda delay_us=delay_us: seen.append(delay_us))  # type: ignore[misc]
    scheduler.run(25)
    assert seen == [10, 20]
    assert scheduler.now_us == 25
    scheduler.run(100)
    assert seen == [10, 20, 30]


def test_actions_at_one_moment_happen_in_an_order_that_the_seed_decides() -> None:
    def order(seed: int) -> list[int]:
        scheduler = Scheduler(Random(seed))
        seen: list[int] = []
        for number in range(6):
            scheduler.after(5, lambda number=number: seen.append(number))  # type: ignore[misc]
        scheduler.run(5)
        return seen

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(10)}) > 1


def test_a_repeated_action_goes_on_until_time_or_the_queue_ends() -> None:
    scheduler = Scheduler(Random(1))
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1

    scheduler.every(10, tick)
    scheduler.run(1_000)
    assert count >= 100
    before = count
    scheduler.clear()
    scheduler.run(2_000)
    assert count == before
