"""Who has a turn when.  Pure.

Case by case, since preparing one takes longer than measuring it; in each round of a case all
systems have a turn, so that what changes on the machine meanwhile meets all alike.  The order of
the systems turns by one from round to round: what being first or last does to one, it does to each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = ["Settings", "estimate_s", "rotated"]

_T = TypeVar("_T")
_OVERHEAD_S = 0.3  # of each part of a turn: it is built or woken, warmed up, and checked
_WATCH_S = 0.1  # for quiet, before each turn, when it is quiet
_START_S = 8.0  # of a job of two ranks
_CORE_S = 6.0  # each start of the core's benchmark, once per round and transport


@dataclass(frozen=True)
class Settings:
    """What a run is to be like.

    Attributes:
      quick: the short one.
      only_cases: without the machine's limits, the core alone, launch, memory and the like.
      rounds: >= 1.
      turn_s: seconds for each part of a turn.
      deadline_s: from the start of the run, then no turn begins but in the first round.
      quiet_s: seconds that may be spent in all on waiting for quiet.
      launches: of each of the systems that are started again and again; 0: only the first counts.
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


def rotated(items: Sequence[_T], by: int) -> list[_T]:
    if not items:
        return []
    start = by % len(items)
    return [*items[start:], *items[:start]]


def estimate_s(settings: Settings, cases: int, systems: int) -> float:
    """How long a run takes on a quiet machine, roughly.

    Args:
      settings: of the run.
      cases: number of them.
      systems: number of them.
    """

    def rounds_s(rounds: int, cases: int, systems: int) -> float:
        return rounds * cases * systems * (2 * (settings.turn_s + _OVERHEAD_S) + _WATCH_S)

    core_s = (
        0.0 if settings.only_cases else settings.rounds * _CORE_S * (1 if settings.quick else 2)
    )
    few = 4  # of the systems are measured with more ranks, or started again
    return (
        systems * (_START_S + settings.idle_s)
        + rounds_s(settings.rounds, cases, systems)
        + core_s
        + settings.launches * few * _START_S
        + sum(
            few * _START_S * size / 2
            + rounds_s(settings.more_rounds, len(settings.more_cases), few) * size / 2
            for size in settings.more_sizes
        )
    )
