"""What was wrong with a trial, and how long the others took.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from horovod.common import core
from tests.faults.catalog import Trial
from tests.faults.rank_main import STEPS_AFTER

__all__ = ["BOUND_S", "START_TIMEOUT_S", "Observation", "Verdict", "judge"]

BOUND_S = 2.0  # from the fault to the error, and to the victim's own end
START_TIMEOUT_S = 30.0  # HOROVOD_START_TIMEOUT_SECONDS: nobody may wait it out


@dataclass(frozen=True)
class Observation:
    """What was seen of a trial.

    Attributes:
      trial: what was to happen.
      problem: what did not happen in time; None if the trial came to its end.
      fault_s: the moment of the fault, or of SIGCONT; None if it was not reached.
      events: of each rank, what it reported.
      statuses: of each rank, as subprocess has it; None while it runs.
      ended_s: the moment at which a rank's process was seen to have ended.
      left: what was left behind, besides what the ranks report themselves.
      outputs: the end of what each rank printed.
    """

    trial: Trial
    problem: str | None
    fault_s: float | None
    events: list[list[dict[str, Any]]]
    statuses: list[int | None]
    ended_s: dict[int, float] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def of(self, rank: int, event: str) -> list[dict[str, Any]]:
        """Returns what `rank` reported under this name."""
        return [item for item in self.events[rank] if item["event"] == event]

    def left_behind(self) -> list[str]:
        """Returns all that was left behind, with the rank where one reported it."""
        return self.left + [
            f"rank {rank}: {what}"
            for rank in range(self.trial.size)
            for event in self.of(rank, "left")
            for what in event["remains"]
        ]


@dataclass(frozen=True)
class Verdict:
    """What a trial came to.

    Attributes:
      complaints: a sentence for each thing that is wrong.
      in_init: whether the fault met a job that was not complete yet.
      seconds: for each rank that survived, from the fault to its error, or from SIGCONT to the
        end of its next step.
    """

    complaints: list[str]
    in_init: bool
    seconds: list[float]


def judge(seen: Observation, slack: float = 1.0) -> Verdict:
    """Holds a trial against what must be.

    Args:
      seen: the trial.
      slack: times the bounds, for a machine that does other work.
    """
    if seen.problem or seen.fault_s is None:
        return Verdict([seen.problem or "the fault was not reached"], seen.trial.in_init, [])
    in_init = _was_in_init(seen)
    complaints = list(_ends(seen, slack)) + [f"left behind: {what}" for what in seen.left_behind()]
    seconds: dict[int, float] = {}
    for rank in _survivors(seen):
        answer = "raised" if seen.trial.fault.seen_as is not None else "step"
        times = [event["at_s"] - seen.fault_s for event in seen.of(rank, answer)]
        seconds[rank] = min((s for s in times if s > 0), default=-1.0)
    if seen.trial.fault.seen_as is None:
        complaints += _going_on(seen)
    else:
        bound_s = slack * BOUND_S
        complaints += _errors(seen, seconds, in_init, bound_s)
    if seen.trial.rejoins:
        complaints += _second_generation(seen)
    return Verdict(complaints, in_init, [s for s in seconds.values() if s > 0])


def _survivors(seen: Observation) -> list[int]:
    """The ranks that are to raise, or, when nobody is, all that are to go on."""
    everyone = range(seen.trial.size)
    if seen.trial.fault.seen_as is None:
        return list(everyone)
    return [rank for rank in everyone if rank != seen.trial.victim]


def _was_in_init(seen: Observation) -> bool:
    assert seen.fault_s is not None
    began_s = seen.fault_s - (seen.trial.stopped_s if seen.trial.fault.seen_as is None else 0.0)
    first = [seen.of(rank, "initialized")[:1] for rank in range(seen.trial.size)]
    return any(not event or event[0]["at_s"] > began_s for event in first)


def _ends(seen: Observation, slack: float) -> Iterator[str]:
    """How the processes ended."""
    trial = seen.trial
    for rank, status in enumerate(seen.statuses):
        dies = rank == trial.victim and trial.fault.victim_status is not None
        want = trial.fault.victim_status if dies else 0
        if status != want:
            yield f"rank {rank} ended with status {status}, not {want}"
    if trial.fault.victim_status is not None and seen.fault_s is not None:
        took_s = seen.ended_s.get(trial.victim, seen.fault_s) - seen.fault_s
        if took_s > slack * BOUND_S:
            yield f"the victim, rank {trial.victim}, took {took_s:.2f} s to end"


def _going_on(seen: Observation) -> Iterator[str]:
    """Nobody may take a rank that is only slow for lost."""
    assert seen.fault_s is not None
    for rank in range(seen.trial.size):
        for event in seen.of(rank, "raised"):
            yield f"rank {rank} raised: {event['text']}"
        steps = sum(event["at_s"] > seen.fault_s for event in seen.of(rank, "step"))
        if steps < STEPS_AFTER:
            yield f"rank {rank} made {steps} steps after SIGCONT"


def _errors(
    seen: Observation, seconds: dict[int, float], in_init: bool, bound_s: float
) -> Iterator[str]:
    """Each survivor raises once, in time, and its error says who and how."""
    fault, victim = seen.trial.fault, seen.trial.victim
    for rank in _survivors(seen):
        raised = [event for event in seen.of(rank, "raised") if event["generation"] == 0]
        if len(raised) != 1:
            yield f"rank {rank} raised {len(raised)} times in the first generation"
            continue
        code, text = raised[0]["code"], raised[0]["text"]
        if seconds[rank] < 0:
            yield f"rank {rank} raised before the fault: {text}"
        if seconds[rank] > bound_s:
            yield f"rank {rank} raised after {seconds[rank]:.2f} s, the bound is {bound_s:g} s"
        # How a rank ended during init() is not always known.
        how = "" if in_init else f".*{fault.seen_as}"
        causes = [victim, *(_left_before(seen, rank) if fault.orderly else ())]
        if not any(re.search(rf"\brank {cause}\b{how}", text) for cause in causes):
            yield f"rank {rank} does not say 'rank {victim}{how}': {text}"
        if in_init:
            if code == core.SHUTDOWN and not fault.orderly:
                yield f"rank {rank} takes it for an orderly end: {text}"
            continue
        want = core.SHUTDOWN if fault.orderly else core.PEER_LOST
        if code != want:
            yield f"rank {rank} got code {code}, not {want}: {text}"


def _left_before(seen: Observation, rank: int) -> list[int]:
    """Others that raised and left in order before `rank` raised: it may be told of these."""
    mine_s = seen.of(rank, "raised")[0]["at_s"]
    return [
        other
        for other in _survivors(seen)
        if any(event["at_s"] < mine_s for event in seen.of(other, "raised"))
    ]


def _second_generation(seen: Observation) -> Iterator[str]:
    for rank in range(seen.trial.size):
        steps = sum(event["generation"] == 1 for event in seen.of(rank, "step"))
        if steps != STEPS_AFTER:
            yield f"rank {rank} made {steps} steps after the second init(), not {STEPS_AFTER}"
        for event in seen.of(rank, "raised"):
            if event["generation"] == 1:
                yield f"rank {rank} raised after the second init(): {event['text']}"
