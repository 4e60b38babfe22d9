"""Who has a turn when.  Pure.

Case by case, since preparing one takes longer than measuring it; in each round of a case all
systems have a turn, so that what changes on the machine meanwhile meets all alike.  The order of
the systems is drawn anew for each round, the same in every run: nobody has always the same before
him, whose traces he finds in the caches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

__all__ = [
    "IDLE_LAUNCHES",
    "LAUNCHED",
    "Settings",
    "at",
    "case_s",
    "estimate_s",
    "later_s",
    "order",
    "share_s",
]

# The systems that are started again and again; the others once, and in the quick run not at all.
LAUNCHED = ("ours", "gloo", "mpi")
IDLE_LAUNCHES = 3  # of each of those; in the first of them it is also watched doing nothing

_T = TypeVar("_T")
_OVERHEAD_S = 0.3  # of each part of a turn: it is built or woken, warmed up, and checked
_WATCH_S = 0.1  # for quiet, before each turn, when it is quiet
_START_S = 6.0  # of a job of two ranks
_DEAR_S = 200.0  # what the few large cases of the whole run take beyond that
_CORE_S = 14.0  # a round of the limits and of the core alone with all its cases, both transports
_QUICK_CORE_S = 4.0  # the same with a few cases and one transport
_INSTRUCTIONS_S = 30.0
_JUDGED = 4  # systems that are measured with more ranks


@dataclass(frozen=True)
class Settings:
    """What a run is to be like.

    Attributes:
      quick: the short one.
      only_cases: without the machine's limits, the core alone, launch, memory and the like.
      rounds: >= 1.
      turn_s: seconds for each part of a turn.
      deadline_s: from the start of the run, then nothing more begins.
      quiet_s: seconds that may be spent in all on waiting for quiet.
      launches: of each of LAUNCHED.
      idle_s: how long a job is watched doing nothing.
      more_sizes: further numbers of ranks.
      more_rounds: for those.
      more_cases: for those.
    """

    quick: bool
    only_cases: bool
    rounds: int
    turn_s: float
    deadline_s: float
    quiet_s: float
    launches: int
    idle_s: float
    more_sizes: tuple[int, ...]
    more_rounds: int
    more_cases: tuple[str, ...]


def order(items: Iterable[_T], of: str, number: int) -> list[_T]:
    """The items in the order of one round.

    Args:
      items: all of them.
      of: what the round is of, such as a case; two have nothing to do with each other.
      number: of the round.
    """
    found = list(items)
    random.Random(f"{of} {number}").shuffle(found)
    return found


def at(place: int, places: int, rounds: int) -> list[int]:
    """The rounds that begin at one of several places in a row, spread over all of them."""
    return [number for number in range(rounds) if number * places // rounds == place]


def share_s(left_s: float, later_planned_s: float, later: int) -> float:
    """How long one of several things in a row may take.

    All that is left but what the later ones are planned to take, or an equal part if that is not
    enough: so a dear one may take what the cheap ones leave, and none is starved.

    Args:
      left_s: for all that is left to do.
      later_planned_s: for those that come after this one, all together.
      later: how many those are.
    """
    return left_s - min(later_planned_s, left_s * later / (later + 1))


def case_s(settings: Settings, systems: int) -> float:
    """How long all rounds of a usual case take."""
    turn_s = 2 * (settings.turn_s + _OVERHEAD_S) + _WATCH_S
    return settings.rounds * systems * turn_s


def later_s(settings: Settings) -> float:
    """How long what comes after the cases takes on a quiet machine, roughly."""
    if settings.only_cases:
        return 0.0
    others = 0 if settings.quick else 4
    launches_s = (settings.launches * len(LAUNCHED) + others) * _START_S
    idle_s = (min(settings.launches, IDLE_LAUNCHES) * len(LAUNCHED) + others) * settings.idle_s
    more = replace(settings, rounds=settings.more_rounds)
    return (
        launches_s
        + idle_s
        + (0.0 if settings.quick else _INSTRUCTIONS_S)
        + sum(
            (_JUDGED * _START_S + len(settings.more_cases) * case_s(more, _JUDGED)) * size / 2
            for size in settings.more_sizes
        )
    )


def estimate_s(settings: Settings, cases: int, systems: int) -> float:
    """How long a run takes on a quiet machine, roughly.

    Args:
      settings: of the run.
      cases: number of them.
      systems: number of them.
    """
    cases_s = systems * _START_S + cases * case_s(settings, systems)
    if settings.only_cases:
        return cases_s
    if settings.quick:
        return cases_s + settings.rounds * _QUICK_CORE_S + later_s(settings)
    return cases_s + _DEAR_S + settings.rounds * _CORE_S + later_s(settings)
