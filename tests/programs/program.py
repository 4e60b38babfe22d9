"""What a program is: phases of steps of collectives, and what of it each rank does.  Pure data.

A step's calls are made by each rank in an order of its own, and then waited for.  In a phase with
`leaves` each rank joins after so many steps, and the others go on without it; when all have joined
the next phase begins.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = [
    "GATE",
    "JOIN",
    "UNKNOWN_SET",
    "Call",
    "Doubled",
    "Id",
    "Op",
    "Phase",
    "Program",
    "Step",
    "active",
    "described",
    "members_of",
    "ops_of",
    "process_sets",
    "waves",
]

UNKNOWN_SET = 99
GATE = "gate"  # the name of the barrier of a Doubled

Id = tuple[int, int, int]  # of an op: phase, step, place in the step


@dataclass(frozen=True)
class Call:
    """One rank's part of a collective.

    Attributes:
      kind: allreduce, allgather, broadcast, alltoall, reducescatter, barrier or join.
      process_set: 0 is all ranks.
      shapes: of its tensors; one, unless it is a group or a barrier.
      seed: of the tensors' elements (values.py).
      cancelled: whether the rank cancels it right after it was enqueued.
      in_flight: whether the name is in flight on this rank when it calls.
    """

    kind: str
    name: str
    process_set: int = 0
    dtype: str = "float32"
    shapes: tuple[tuple[int, ...], ...] = ()
    grouped: bool = False
    op: str = "Sum"
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    splits: tuple[int, ...] | None = None
    seed: int = 0
    cancelled: bool = False
    in_flight: bool = False


JOIN = Call("join", "<join>")


@dataclass(frozen=True)
class Op:
    """One collective on one process set: the call of each rank that makes it, unless it has joined.

    Ranks outside the set may call, too; that is wrong.
    """

    calls: dict[int, Call]


@dataclass(frozen=True)
class Doubled:
    """A name that `rank` uses twice at once: ops are its first use, its second and a barrier.

    The others wait for the barrier before they call, so the first is in flight for certain.
    """

    rank: int


@dataclass(frozen=True)
class Step:
    """Collectives that are in flight together; `order` makes the order of each rank's calls."""

    ops: tuple[Op, ...]
    order: int = 0
    doubled: Doubled | None = None


@dataclass(frozen=True)
class Phase:
    """Steps; `leaves` says, by rank, after how many of them it joins.  None: nobody joins."""

    steps: tuple[Step, ...]
    leaves: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Program:
    """What `size` ranks do.  `choices` are the numbers that it was made from."""

    size: int
    phases: tuple[Phase, ...] = field(repr=False)  # described() is for readers
    choices: tuple[int, ...] = field(default=(), compare=False)


def process_sets(size: int) -> list[list[int]]:
    """The sets given to init, which get the ids 1, 2, ...: overlapping ones, and one rank alone."""
    return [[0, 1], list(range(1, size)), [0, size - 1], [1]]


def members_of(process_set: int, size: int) -> list[int]:
    """Ranks of the set; none where there is no such set."""
    sets = [list(range(size)), *process_sets(size)]
    return sets[process_set] if process_set < len(sets) else []


def active(program: Program, phase: int, step: int) -> list[int]:
    """Ranks that have not joined when the step begins."""
    leaves = program.phases[phase].leaves
    return [r for r in range(program.size) if leaves is None or step < leaves[r]]


def ops_of(program: Program) -> Iterator[tuple[Id, Op]]:
    """Every op but the joins."""
    for p, phase in enumerate(program.phases):
        for s, step in enumerate(phase.steps):
            for o, op in enumerate(step.ops):
                yield (p, s, o), op


def waves(program: Program, rank: int) -> Iterator[list[tuple[Id, Call]]]:
    """What the rank enqueues, in order; it waits for all of a wave before the next one.

    The id of a join is (phase, number of steps of the phase, 0).
    """
    for p, phase in enumerate(program.phases):
        for s, step in enumerate(phase.steps):
            if rank in active(program, p, s):
                yield from _waves_of(step, rank, (p, s))
        if phase.leaves is not None:
            yield [((p, len(phase.steps), 0), JOIN)]


def _waves_of(step: Step, rank: int, where: tuple[int, int]) -> Iterator[list[tuple[Id, Call]]]:
    calls: list[tuple[Id, Call]] = [
        ((*where, o), op.calls[rank]) for o, op in enumerate(step.ops) if rank in op.calls
    ]
    if step.doubled is None:
        if step.order:
            random.Random(step.order * 64 + rank).shuffle(calls)
        yield calls
    elif not calls or rank == step.doubled.rank:
        yield calls
    else:
        first, second, gate = calls
        yield from ([gate], [first], [second])


def described(program: Program) -> str:
    """The program for a reader: a line for each op, with what is not the same on all ranks."""
    lines = [f"{program.size} ranks, sets {process_sets(program.size)}"]
    for p, phase in enumerate(program.phases):
        leaves = "" if phase.leaves is None else f"; steps before they join: {list(phase.leaves)}"
        lines.append(f"phase {p}{leaves}")
        for s, step in enumerate(phase.steps):
            doubled = "" if step.doubled is None else f", doubled by rank {step.doubled.rank}"
            lines.append(f"  step {s} (order {step.order}{doubled})")
            for o, op in enumerate(step.ops):
                lines.append(f"    op {o}")
                for rank, call in op.calls.items():
                    lines.append(f"      rank {rank}: {_text(call)}")
    return "\n".join(lines)


def _text(call: Call) -> str:
    plain = Call(call.kind, call.name)
    changed = [
        f"{name}={value!r}"
        for name, value in vars(call).items()
        if name not in ("kind", "name") and value != getattr(plain, name)
    ]
    return f"{call.kind} {call.name!r} {' '.join(changed)}".rstrip()
