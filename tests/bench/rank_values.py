"""What goes into the collectives of a case, and what must come out.  NumPy alone.

Element j of tensor `index` of a rank is a small whole number that depends on all three.  All sums
are exact in every dtype, bfloat16 included, for up to 9 ranks and factors up to 2, so a result is
right or wrong, and by no tolerance.  The period of 13 divides no chunk of any algorithm, so a chunk
in a wrong place is seen.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.bench.cases import Case
from tests.bench.errors import WrongResult

__all__ = ["check", "inputs", "results"]

_PERIOD = 13
_TILES = 1 << 10


def inputs(case: Case, rank: int) -> list[Any]:
    """Returns a rank's tensors of a case as float32 arrays."""
    return [
        _periodic(_period(rank, index), math.prod(shape)).reshape(shape)
        for index, shape in enumerate(case.shapes)
    ]


def results(case: Case, part: str, rank: int, size: int, index: int, factor: int) -> Any:
    """Returns what the collective of tensor `index` must give, flat, as a float32 array.

    Args:
      case: not a "step".
      part: "gross": over all ranks; "baseline": the inputs alone.
      rank: who looks.
      size: number of ranks; for "alltoall" and "reducescatter" a divisor of the length.
      index: of the tensor.
      factor: what every rank has multiplied its inputs by.
    """
    count = math.prod(case.shapes[index])
    ranks = range(size) if part == "gross" else [rank]
    periods = [factor * _period(peer, index) for peer in ranks]
    if case.collective == "allreduce":
        return _periodic(sum(periods), count)
    if case.collective == "broadcast":
        return _periodic(periods[0], count)
    if case.collective == "allgather":
        return np.concatenate([_periodic(period, count) for period in periods])
    share = count // len(periods)
    mine = slice(ranks.index(rank) * share, (ranks.index(rank) + 1) * share)
    if case.collective == "reducescatter":
        return _periodic(sum(periods), count)[mine]
    if case.collective == "alltoall":
        return np.concatenate([_periodic(period, count)[mine] for period in periods])
    raise ValueError(f"case {case.name!r}: nothing is known of {case.collective!r}")


def check(case: Case, part: str, rank: int, size: int, got: list[Any], factor: int) -> None:
    """Compares the results of all tensors of a case.

    Args:
      case: as for `results`, as are the next three.
      part: which.
      rank: who looks.
      size: number of ranks.
      got: arrays of any shape and numeric dtype, in the order of the case's shapes.
      factor: what every rank has multiplied its inputs by.

    Raises:
      WrongResult: an element differs, or there are too few or too many.
    """
    if len(got) != len(case.shapes):
        raise WrongResult(f"{case.name}, {part}: {len(got)} results, not {len(case.shapes)}")
    for index, array in enumerate(got):
        flat = np.asarray(array).reshape(-1).astype(np.float32, copy=False)
        want = results(case, part, rank, size, index, factor)
        where = f"{case.name}, {part}, tensor {index} on rank {rank} of {size}"
        if flat.size != want.size:
            raise WrongResult(f"{where}: {flat.size} elements, not {want.size}")
        wrong = np.flatnonzero(flat != want)
        if wrong.size:
            raise WrongResult(
                f"{where}: element {wrong[0]} is {flat[wrong[0]]}, not {want[wrong[0]]}; "
                f"{wrong.size} of {want.size} are wrong"
            )


def _period(rank: int, index: int) -> Any:
    return ((np.arange(_PERIOD) * 5 + 7 * index + 3 * rank) % _PERIOD + 1).astype(np.float32)


def _periodic(period: Any, count: int) -> Any:
    """`period` over and over, `count` elements; by whole blocks, which is fast."""
    block = np.tile(period, min(_TILES, -(-count // _PERIOD)))
    return np.tile(block, -(-count // block.size))[:count]
