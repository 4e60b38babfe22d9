"""Makes programs from a source of small numbers.

The source may be hypothesis, which then shrinks the program, or a random generator, or a list of
numbers, which repeats a program.  Smaller numbers make simpler programs: 0 is always the plain
choice, and a list that has come to its end goes on with zeros.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from tests.programs.program import (
    GATE,
    UNKNOWN_SET,
    Call,
    Doubled,
    Op,
    Phase,
    Program,
    Step,
    members_of,
    process_sets,
)

__all__ = ["Choose", "draw", "from_choices", "from_seed"]

# Returns a number in [0, most].
Choose = Callable[[int], int]
T = TypeVar("T")

_MOST_PHASES, _MOST_STEPS, _MOST_OPS = 3, 3, 4
_KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier")
_DTYPES = (
    "float32", "int32", "float16", "bfloat16", "float64", "int64", "bool", "uint8", "int8",
    "uint16", "int16",
)  # fmt: skip
_OPS = ("Sum", "Average", "Min", "Max", "Product")
# Powers of two and small numbers, so that integers scaled by them are exact in float64.
_FACTORS = (1.0, 0.5, 2.0, -1.0, 0.0, 3.0)
# Some of these tensors are larger than the staging memory and the fusion threshold of job.py.
_ROWS = (1, 0, 3, 2, 7, 40, 700)
_INNER: tuple[tuple[int, ...] | None, ...] = ((), (3,), None, (0,), (2, 2))  # None: a scalar
_SPLITS = (1, 0, 2, 5, 0, 60)
_NAMES = "abcdef"
_RIGHT_OF = 3  # as many ops of a step are right for each that may be wrong


def draw(size: int, choose: Choose) -> Program:
    """Makes a program of `size` ranks; what it chose is kept in it."""
    choices: list[int] = []

    def chosen(most: int) -> int:
        choices.append(choose(most))
        return choices[-1]

    maker = _Maker(size, chosen)
    phases = maker.some(_MOST_PHASES, lambda _: maker.phase())
    return Program(size, phases, tuple(choices))


def from_seed(size: int, seed: int) -> Program:
    """The program of that seed."""
    source = random.Random(seed)
    return draw(size, lambda most: source.randint(0, most))


def from_choices(size: int, choices: Iterable[int]) -> Program:
    """The program that was made of these choices."""
    left = iter(choices)
    return draw(size, lambda most: min(next(left, 0), most))


class _Maker:
    def __init__(self, size: int, choose: Choose) -> None:
        self._size = size
        self._choose = choose
        self._seed = 0

    def some(self, most: int, make: Callable[[int], T]) -> tuple[T, ...]:
        """One to `most` of what `make` makes, which gets the number of each.

        A choice after each says whether another one follows, and not one before all how many there
        are: hypothesis can then take any of them out.
        """
        made = [make(0)]
        while len(made) < most and self._choose(3) > 0:
            made.append(make(len(made)))
        return tuple(made)

    def phase(self) -> Phase:
        leaves = None
        if self._choose(2) == 2:
            leaves = tuple(self._choose(_MOST_STEPS) for _ in range(self._size))
        steps = self.some(_MOST_STEPS, lambda number: self._step(leaves, number))
        if leaves is not None:
            leaves = tuple(min(leave, len(steps)) for leave in leaves)
        return Phase(steps, leaves)

    def _step(self, leaves: tuple[int, ...] | None, number: int) -> Step:
        all_here = leaves is None or number < min(leaves)
        if self._choose(15) == 15 and all_here:
            return self._doubled()
        order = self._choose(15)
        # A name is of one op of a step for each set, and comes again in later steps.
        ops: dict[tuple[int, str], Op] = {}
        for op in self.some(_MOST_OPS, lambda _: self._op()):
            call = next(iter(op.calls.values()))
            ops.setdefault((call.process_set, call.name), op)
        return Step(tuple(ops.values()), order)

    def _doubled(self) -> Step:
        process_set = self._choose(2)
        members = members_of(process_set, self._size)
        rank = members[self._choose(len(members) - 1)]
        call = self._call("allreduce", process_set)
        first = {r: call for r in members}
        second = {**first, rank: dataclasses.replace(call, in_flight=True)}
        gate = {r: Call("barrier", GATE, process_set) for r in members}
        return Step((Op(first), Op(second), Op(gate)), 0, Doubled(rank))

    def _op(self) -> Op:
        kind = _KINDS[self._choose(len(_KINDS) - 1)]
        choice = self._choose(2 * len(process_sets(self._size)))
        process_set = choice if choice <= len(process_sets(self._size)) else 0
        members = members_of(process_set, self._size)
        plain = self._call(kind, process_set)
        # What may be another on each rank.
        base, spread = self._choose(len(_ROWS) - 1), self._choose(5)
        calls = {rank: self._of_rank(plain, rank, base, spread) for rank in members}
        wrong = self._choose(_RIGHT_OF * len(_WRONGS))
        if wrong > (_RIGHT_OF - 1) * len(_WRONGS):
            _WRONGS[wrong - (_RIGHT_OF - 1) * len(_WRONGS) - 1](self, calls, members)
        return Op(calls)

    def _call(self, kind: str, process_set: int) -> Call:
        """The call as all ranks make it, with one row."""
        name = _NAMES[self._choose(len(_NAMES) - 1)]
        self._seed += 1
        if kind == "barrier":
            return Call(kind, name, process_set)
        dtype = _DTYPES[self._choose(len(_DTYPES) - 1)]
        inner = _INNER[self._choose(len(_INNER) - 1)]
        shape = (1, *inner) if inner is not None else ()
        if inner is None and kind not in ("allreduce", "broadcast"):
            shape = (1,)
        fields: dict[str, Any] = {}
        if kind in ("allreduce", "allgather", "reducescatter"):
            count = self._choose(3)
            fields = {"shapes": (shape,) * max(count, 1), "grouped": count > 0}
        made = Call(kind, name, process_set, dtype, (shape,), seed=self._seed)
        if kind in ("allreduce", "reducescatter"):
            op = _OPS[self._choose(len(_OPS) - 1)]
            fields["op"] = "Sum" if dtype == "bool" and op == "Average" else op
            if dtype != "bool" and self._choose(3) == 3:
                fields["prescale"] = _FACTORS[self._choose(len(_FACTORS) - 1)]
                fields["postscale"] = _FACTORS[self._choose(len(_FACTORS) - 1)]
        if kind == "broadcast":
            members = members_of(process_set, self._size)
            fields["root"] = members[self._choose(len(members) - 1)]
        return dataclasses.replace(made, **fields)

    def _of_rank(self, call: Call, rank: int, base: int, spread: int) -> Call:
        rows = _ROWS[base]
        if call.kind == "allgather":
            rows = _ROWS[(base + spread * rank) % len(_ROWS)]
        if call.kind == "alltoall":
            n = len(members_of(call.process_set, self._size))
            if spread == 0:
                rows = n * _ROWS[base]
            else:
                splits = tuple(
                    _SPLITS[(base + spread * rank + place * (spread // 2)) % len(_SPLITS)]
                    for place in range(n)
                )
                call, rows = dataclasses.replace(call, splits=splits), sum(splits)
        # The tensors of a group have rows of their own.
        shapes = tuple((rows + i, *s[1:]) if s else () for i, s in enumerate(call.shapes))
        return dataclasses.replace(call, shapes=shapes)

    # What may be wrong with an op.  Each changes the calls of some ranks, where it applies.

    def _one(self, calls: dict[int, Call], members: list[int], **fields: object) -> None:
        rank = members[self._choose(len(members) - 1)]
        calls[rank] = dataclasses.replace(calls[rank], **fields)  # type: ignore[arg-type]

    def _shape(self, calls: dict[int, Call], members: list[int]) -> None:
        shapes = calls[members[0]].shapes
        if shapes:
            self._one(calls, members, shapes=(*shapes[:-1], (*shapes[-1], 2)))

    def _scalar(self, calls: dict[int, Call], members: list[int]) -> None:
        if calls[members[0]].shapes:
            self._one(calls, members, shapes=((),), grouped=False, splits=None)

    def _dtype(self, calls: dict[int, Call], members: list[int]) -> None:
        self._one(calls, members, dtype=_DTYPES[self._choose(len(_DTYPES) - 1)])

    def _reduction(self, calls: dict[int, Call], members: list[int]) -> None:
        self._one(calls, members, op=_OPS[self._choose(len(_OPS) - 1)])

    def _factor(self, calls: dict[int, Call], members: list[int]) -> None:
        which = ("prescale", "postscale")[self._choose(1)]
        value = (*_FACTORS, float("nan"))[self._choose(len(_FACTORS))]
        self._one(calls, members, **{which: value})

    def _root(self, calls: dict[int, Call], members: list[int]) -> None:
        self._one(calls, members, root=self._choose(self._size + 1) - 1)

    def _group(self, calls: dict[int, Call], members: list[int]) -> None:
        count = self._choose(3)
        shapes = calls[members[0]].shapes
        if shapes:
            self._one(calls, members, shapes=(shapes * 3)[:count], grouped=True)

    def _kind(self, calls: dict[int, Call], members: list[int]) -> None:
        kind = _KINDS[self._choose(len(_KINDS) - 2)]
        if calls[members[0]].shapes:
            self._one(calls, members, kind=kind, splits=None)

    def _splits(self, calls: dict[int, Call], members: list[int]) -> None:
        n = len(members)
        wrongs = ((1,) * (n + 1), (-1,) + (1,) * (n - 1), (701,) + (0,) * (n - 1), (0,) * n)
        self._one(calls, members, splits=wrongs[self._choose(len(wrongs) - 1)])

    def _bools(self, calls: dict[int, Call], members: list[int]) -> None:
        for rank in members:
            calls[rank] = dataclasses.replace(calls[rank], dtype="bool", op="Average")

    def _unknown_set(self, calls: dict[int, Call], members: list[int]) -> None:
        rank = self._choose(self._size - 1)
        call = calls[members[0]]
        calls.clear()
        calls[rank] = dataclasses.replace(call, process_set=UNKNOWN_SET)

    def _outsider(self, calls: dict[int, Call], members: list[int]) -> None:
        outside = [rank for rank in range(self._size) if rank not in members]
        if outside:
            calls[outside[self._choose(len(outside) - 1)]] = calls[members[0]]

    def _cancel(self, calls: dict[int, Call], members: list[int]) -> None:
        self._one(calls, members, cancelled=True)


_WRONGS = (
    _Maker._shape, _Maker._dtype, _Maker._reduction, _Maker._factor, _Maker._root, _Maker._group,
    _Maker._kind, _Maker._scalar, _Maker._splits, _Maker._bools, _Maker._unknown_set,
    _Maker._outsider, _Maker._cancel,
)  # fmt: skip
