"""The benchmarks' plan: who has a turn when, for how long, and waiting for quiet."""

from __future__ import annotations

import pytest

from tests.bench import __main__ as driver
from tests.bench import plan, quiet
from tests.bench.cases import CASES
from tests.bench.systems import SYSTEMS


def test_the_order_is_drawn_for_each_round_and_is_the_same_in_every_run() -> None:
    names = [system.name for system in SYSTEMS]
    orders = [plan.order(names, "a case", number) for number in range(20)]
    assert orders == [plan.order(names, "a case", number) for number in range(20)]
    assert all(sorted(order) == sorted(names) for order in orders)
    assert {order[0] for order in orders} == set(names)
    before = {(one, two) for order in orders for one, two in zip(order, order[1:])}
    for name in names:  # not always the same one
        assert len({one for one, two in before if two == name}) >= 4
    assert orders != [plan.order(names, "another", number) for number in range(20)]
    assert plan.order([], "a case", 5) == []


@pytest.mark.parametrize(
    ("places", "rounds", "where"),
    [
        (22, 5, {0: [0], 4: [1], 8: [2], 13: [3], 17: [4]}),
        (2, 5, {0: [0, 1, 2], 1: [3, 4]}),
        (1, 2, {0: [0, 1]}),
        (3, 1, {0: [0]}),
    ],
)
def test_rounds_are_spread_over_the_cases(places: int, rounds: int, where) -> None:
    found = {place: plan.at(place, places, rounds) for place in range(places)}
    assert {place: numbers for place, numbers in found.items() if numbers} == where


@pytest.mark.parametrize(
    ("left_s", "later_planned_s", "later", "share_s"),
    [
        (100, 30, 3, 70),  # enough for all: what they do not need
        (100, 400, 3, 25),  # not enough: an equal part
        (100, 0, 0, 100),  # the last one
        (-8, 30, 3, -2),  # too late
    ],
)
def test_a_case_may_take_what_the_later_ones_leave(
    left_s: float, later_planned_s: float, later: int, share_s: float
) -> None:
    assert plan.share_s(left_s, later_planned_s, later) == share_s


@pytest.mark.parametrize(("arguments", "minutes"), [(["--quick"], 4), ([], 35)])
def test_the_usual_runs_are_planned_to_end_in_time(arguments: list[str], minutes: int) -> None:
    settings = driver._settings(driver._parser().parse_args(arguments))
    cases = [case for case in CASES if case.quick or not settings.quick]
    systems = [system for system in SYSTEMS if system.judged or not settings.quick]
    assert plan.estimate_s(settings, len(cases), len(systems)) < settings.deadline_s
    assert settings.deadline_s < minutes * 60


STAT = "cpu  100 10 30 5000 70 2 3 {steal} 40 0\ncpu0 1 2 3 4\n"


def test_busy_ticks_are_all_but_idle_and_waiting() -> None:
    assert quiet.busy_ticks(STAT.format(steal=6)) == 100 + 10 + 30 + 2 + 3 + 6


def test_it_waits_for_quiet_and_says_for_whom() -> None:
    looks, said = iter([2.0, 1.0, 0.1, 0.0]), []
    watch = quiet.Quiet(100, said.append, lambda: next(looks), lambda: ["cc1plus (7): 2.0 CPUs"])
    assert watch.wait() == 0.1
    assert said == ["waiting for quiet: 2.0 CPUs are busy: cc1plus (7): 2.0 CPUs"]
    assert watch.wait() == 0.0 and len(said) == 1


def test_it_does_not_wait_for_ever() -> None:
    said: list[str] = []
    watch = quiet.Quiet(0.01, said.append, lambda: 2.0, lambda: [])
    assert watch.wait() == 2.0
    assert watch.left_s <= 0 and "no more waiting" in said[-1]
    count = len(said)
    assert watch.wait() == 2.0 and len(said) == count  # spent: it only looks
