"""What each call of a program must come to: a result, or an error with its code and words.  Pure.

It knows the rules of the interface and nothing of how ranks negotiate.  Where two things race, such
as a cancellation and the last rank's call, it names every way in which it may end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.programs import values
from tests.programs.program import Call, Id, Program, active, members_of, ops_of

__all__ = [
    "CANCELLED",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "OK",
    "Error",
    "Expected",
    "expected_of",
    "last_to_join",
]

OK, CANCELLED, INVALID_ARGUMENT, FAILED_PRECONDITION = 0, 1, 2, 3  # hvd_code

_REDUCTIONS = ("allreduce", "reducescatter")
_NEEDS_ROWS = ("allgather", "alltoall", "reducescatter")
_SAME_EVERYWHERE = ("allreduce", "allgather", "broadcast")
_MAY_BE_GROUPED = ("allreduce", "allgather", "reducescatter")


@dataclass(frozen=True)
class Error:
    """A code, and words that the text must hold."""

    code: int
    words: tuple[str, ...]


@dataclass
class Expected:
    """What one rank's call may come to.

    Attributes:
      results: its tensors, where it may succeed; else None.
      received_splits: of an alltoall.
      tolerance: relative and absolute, of the results.
      same: whether the results are the same bits on all ranks.
      errors: of which one is due where it fails.
    """

    results: list[values.Array] | None = None
    received_splits: list[int] = field(default_factory=list)
    tolerance: float = 0.0
    same: bool = False
    errors: list[Error] = field(default_factory=list)


def expected_of(program: Program) -> dict[Id, dict[int, Expected]]:
    """For each op, joins left out: what the call of each rank that makes it may come to."""
    return {
        number: _of_op(
            {r: c for r, c in op.calls.items() if r in active(program, *number[:2])}, program.size
        )
        for number, op in ops_of(program)
    }


def last_to_join(program: Program, phase: int) -> set[int]:
    """The ranks that may have been the last to join in a phase.

    Who joined before another rank's call could end is not among them.
    """
    leaves = program.phases[phase].leaves
    assert leaves is not None
    earlier: set[int] = set()
    for number, op in ops_of(program):
        here = active(program, *number[:2])
        calls = {r: c for r, c in op.calls.items() if r in here}
        if number[0] != phase or not calls:
            continue
        process_set = next(iter(calls.values())).process_set
        members = members_of(process_set, program.size)
        takes_part = [c for r, c in calls.items() if r in members]
        waits = takes_part and not any(
            c.cancelled or _own_faults(c, r, program.size) for r, c in calls.items() if r in members
        )
        if waits:
            earlier.update(r for r in members if r not in here)
    return set(range(program.size)) - earlier


def _of_op(calls: Mapping[int, Call], size: int) -> dict[int, Expected]:
    out: dict[int, Expected] = {}
    faults = {r: words for r, c in calls.items() if (words := _own_faults(c, r, size))}
    for rank, words in faults.items():
        name = calls[rank].name
        out[rank] = Expected(
            errors=[Error(INVALID_ARGUMENT, (f"'{name}'", word)) for word in words]
        )
    if not calls:
        return out
    members = members_of(next(iter(calls.values())).process_set, size)
    rest = {r: c for r, c in sorted(calls.items()) if r in members and r not in faults}
    absent = [r for r in members if r not in calls]
    refused = [
        Error(FAILED_PRECONDITION, (f"rank {r} ", "could not take part", word))
        for r, words in faults.items()
        if r in members
        for word in words
    ]
    wrong = refused or _disagreements(rest) or _missed(rest, absent)
    for rank, call in rest.items():
        out[rank] = expected = Expected(errors=list(wrong))
        for other, its in rest.items():
            if its.cancelled and other == rank:
                expected.errors.append(Error(CANCELLED, ("cancelled",)))
            elif its.cancelled:
                words_of_other = (f"rank {other} ", "its caller cancelled it")
                expected.errors.append(Error(FAILED_PRECONDITION, words_of_other))
        if not wrong:
            _RESULTS[call.kind](expected, rank, rest, members)
            if call.kind in _REDUCTIONS:
                expected.tolerance = values.tolerance(call, len(rest))
            expected.same = call.kind in _SAME_EVERYWHERE
    return out


def _own_faults(call: Call, rank: int, size: int) -> list[str]:
    """What the rank can know alone, as words for each thing that is wrong."""
    members = members_of(call.process_set, size)
    if not members:
        return ["there is no process set"]
    wrong = ["in flight already"] if call.in_flight else []
    if rank not in members:
        wrong.append(f"rank {rank} is not in process set {call.process_set}")
    if call.grouped and (call.kind not in _MAY_BE_GROUPED or not call.shapes):
        wrong.append("tensors cannot be one request")
    if call.kind == "broadcast" and call.root not in members:
        wrong.append(f"root_rank {call.root} is not in process set")
    if call.kind in _NEEDS_ROWS and () in call.shapes:
        wrong.append("a scalar")
    elif call.kind == "alltoall" and call.shapes:
        wrong += _faults_of_splits(call, len(members))
    if call.kind in _REDUCTIONS:
        if call.dtype == "bool" and call.op == "Average":
            wrong.append("bool has no Average")
        if call.dtype == "bool" and (call.prescale, call.postscale) != (1.0, 1.0):
            wrong.append("bool has no factors")
        if np.isnan(call.prescale) or np.isnan(call.postscale):
            wrong.append("may be NaN")
    return wrong


def _faults_of_splits(call: Call, members: int) -> list[str]:
    rows = call.shapes[0][0]
    if not call.splits:
        return ["cannot be divided evenly"] if rows % members else []
    if len(call.splits) != members:
        return [f"are {len(call.splits)} numbers"]
    wrong = ["none may be negative"] if min(call.splits) < 0 else []
    if sum(call.splits) != rows:
        wrong.append("they must add up")
    return wrong


def _disagreements(calls: Mapping[int, Call]) -> list[Error]:
    """What the first rank that differs from the lowest one, and it, are told by all."""
    if not calls:
        return []
    first = min(calls)
    for rank in sorted(calls):
        words = _differences(calls[first], calls[rank])
        if words:
            return [
                Error(FAILED_PRECONDITION, (f"rank {first} ", f"rank {rank} ", word))
                for word in words
            ]
    return []


def _differences(a: Call, b: Call) -> list[str]:
    if a.kind != b.kind:
        return ["kind"]
    words = []
    if a.kind != "barrier" and a.dtype != b.dtype:
        words.append("dtype")
    if (a.grouped, len(a.shapes)) != (b.grouped, len(b.shapes)):
        words.append("group")
    first = 1 if a.kind in ("allgather", "alltoall") else 0
    dims = [[(len(s), s[first:]) for s in call.shapes] for call in (a, b)]
    if dims[0] != dims[1]:
        words.append("shape")
    if a.kind == "broadcast" and a.root != b.root:
        words.append("root_rank")
    if a.kind in _REDUCTIONS:
        words += [w for w, d in (("op", a.op != b.op),) if d]
        words += [w + "_factor" for w in ("prescale", "postscale") if vars(a)[w] != vars(b)[w]]
    return words


def _missed(calls: Mapping[int, Call], absent: Sequence[int]) -> list[Error]:
    """The errors of a call that cannot go on without ranks that have joined."""
    if not calls or not absent:
        return []
    call = next(iter(calls.values()))
    if call.process_set != 0:
        missed = absent
    elif call.kind == "broadcast" and call.root in absent:
        missed = [call.root]
    else:
        missed = []
    return [Error(FAILED_PRECONDITION, (f"rank {r} ", "has joined")) for r in missed]


def _inputs(calls: Mapping[int, Call]) -> dict[int, list[values.Array]]:
    return {r: values.inputs(c, r) for r, c in calls.items()}


def _allreduce(out: Expected, rank: int, calls: Mapping[int, Call], members: list[int]) -> None:
    tensors = zip(*_inputs(calls).values())
    out.results = [values.reduced(calls[rank], arrays, len(members)) for arrays in tensors]


def _reducescatter(out: Expected, rank: int, calls: Mapping[int, Call], members: list[int]) -> None:
    _allreduce(out, rank, calls, members)
    assert out.results is not None
    out.results = [
        whole[values.share(len(whole), members.index(rank), len(members))] for whole in out.results
    ]


def _allgather(out: Expected, rank: int, calls: Mapping[int, Call], members: list[int]) -> None:
    out.results = [np.concatenate(arrays) for arrays in zip(*_inputs(calls).values())]


def _broadcast(out: Expected, rank: int, calls: Mapping[int, Call], members: list[int]) -> None:
    root = calls[rank].root
    out.results = values.inputs(calls[root], root)


def _alltoall(out: Expected, rank: int, calls: Mapping[int, Call], members: list[int]) -> None:
    parts = []
    me, n = members.index(rank), len(members)
    for other in members:
        if other not in calls:
            out.received_splits.append(0)
            continue
        rows = calls[other].shapes[0][0]
        splits = calls[other].splits or (rows // n,) * n
        begin = sum(splits[:me])
        [array] = values.inputs(calls[other], other)
        parts.append(array[begin : begin + splits[me]])
        out.received_splits.append(splits[me])
    out.results = [np.concatenate(parts)]


def _barrier(out: Expected, rank: int, calls: Mapping[int, Call], members: list[int]) -> None:
    out.results = []


_RESULTS: dict[str, Any] = {
    "allreduce": _allreduce,
    "allgather": _allgather,
    "broadcast": _broadcast,
    "alltoall": _alltoall,
    "reducescatter": _reducescatter,
    "barrier": _barrier,
}
