"""Compares what the ranks saw with what the model says.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.programs import values
from tests.programs.model import OK, Expected, expected_of, last_to_join
from tests.programs.program import Id, Program

__all__ = ["Outcome", "complaints"]


@dataclass
class Outcome:
    """What one call came to.

    Attributes:
      code: hvd_code, of the enqueueing or of the end.
      results: its tensors, if it succeeded.
    """

    code: int
    text: str = ""
    results: list[values.Array] = field(default_factory=list)
    received_splits: list[int] = field(default_factory=list)


def complaints(program: Program, outcomes: Sequence[Mapping[Id, Outcome]]) -> list[str]:
    """Returns a sentence for each thing that is wrong.

    Args:
      program: what was run.
      outcomes: by rank, then by op.
    """
    said = []
    for number, by_rank in expected_of(program).items():
        for rank, expected in by_rank.items():
            outcome = outcomes[rank].get(number)
            wrong = "never ended" if outcome is None else _wrong(expected, outcome)
            if wrong:
                said.append(f"op {number}, rank {rank}: {wrong}")
        said += [f"op {number}: {text}" for text in _together(by_rank, outcomes, number)]
    for p, phase in enumerate(program.phases):
        if phase.leaves is not None:
            said += _of_join(program, p, [o.get((p, len(phase.steps), 0)) for o in outcomes])
    return said


def _wrong(expected: Expected, outcome: Outcome) -> str:
    if outcome.code != OK:
        for error in expected.errors:
            if error.code == outcome.code and all(word in outcome.text for word in error.words):
                return ""
        due = f"one of {expected.errors}" if expected.errors else "a result"
        return f"code {outcome.code}, {outcome.text!r}; due was {due}"
    if expected.results is None:
        return f"a result, {outcome.results}; due was one of {expected.errors}"
    if len(outcome.results) != len(expected.results):
        return f"{len(outcome.results)} tensors; due were {len(expected.results)}"
    for got, want in zip(outcome.results, expected.results):
        if got.shape != want.shape:
            return f"shape {got.shape}; due was {want.shape}"
        if expected.tolerance == 0.0:
            right = np.array_equal(got, want)
        else:
            near = expected.tolerance
            right = np.allclose(got.astype("float64"), want, rtol=near, atol=near)
        if not right:
            return f"{got}; due was {want}"
    if outcome.received_splits != expected.received_splits:
        return f"received_splits {outcome.received_splits}; due was {expected.received_splits}"
    return ""


def _together(
    by_rank: Mapping[int, Expected], outcomes: Sequence[Mapping[Id, Outcome]], number: Id
) -> list[str]:
    """What only all ranks together show: all or nothing, and the same bits."""
    could = [r for r, expected in by_rank.items() if expected.results is not None]
    seen = {r: outcomes[r][number] for r in could if number in outcomes[r]}
    codes = {r: outcome.code for r, outcome in seen.items()}
    if OK in codes.values() and set(codes.values()) != {OK}:
        return [f"it succeeded on some ranks alone: codes by rank {codes}"]
    bits = {tuple(array.tobytes() for array in outcome.results) for outcome in seen.values()}
    if len(bits) > 1 and all(by_rank[r].same for r in could):
        return ["the results are not the same bits on all ranks"]
    return []


def _of_join(program: Program, phase: int, joins: Sequence[Outcome | None]) -> list[str]:
    answers = {
        r: "never ended" if o is None else o.text or int(o.results[0]) for r, o in enumerate(joins)
    }
    may_be = last_to_join(program, phase)
    if len(set(answers.values())) == 1 and answers[0] in may_be:
        return []
    return [f"join of phase {phase}: {answers} by rank; due was the same one of {sorted(may_be)}"]
