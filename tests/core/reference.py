"""What the collectives should give, by NumPy: in float64, or exactly in the integer type."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common.reduce_ops import ReduceOp

__all__ = ["OPS", "adasum", "assert_reduced", "of_rank", "reduced", "rows_kept"]

# Adasum has tests of its own.
OPS = [op for op in ReduceOp if op != ReduceOp.Adasum]

_BOOL = np.dtype("bool")
# One rounding to the type, of sums that were accumulated in at least float32.
_TOLERANCE = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-5, "float64": 1e-13}


def of_rank(rank: int, shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    """A rank's tensor, the same wherever it is made."""
    dtype = np.dtype(dtype)
    random = np.random.default_rng([rank, seed])
    if dtype == _BOOL:
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return random.integers(0 if dtype.kind == "u" else -9, 10, shape).astype(dtype)
    return np.asarray(random.standard_normal(shape)).astype(dtype)


def reduced(
    op: ReduceOp,
    arrays: list[Any],
    *,
    prescale: float = 1.0,
    postscale: float = 1.0,
    divisor: int | None = None,
) -> Any:
    """The reduction of all ranks' arrays.

    Args:
      op: any of OPS, or Adasum without factors; no Average of bools.
      arrays: in rank order, of one dtype and shape.
      prescale, postscale: factors; not of bools.
      divisor: of an Average; default: as many as there are arrays.
    """
    if op == ReduceOp.Adasum:
        return adasum(arrays)
    dtype = arrays[0].dtype
    exact = dtype.kind in "biu"
    if exact and prescale < 0 and op in (ReduceOp.Min, ReduceOp.Max):
        op = ReduceOp.Max if op == ReduceOp.Min else ReduceOp.Min
        return reduced(op, arrays, prescale=-prescale, postscale=-postscale)
    combine: Any
    if dtype == _BOOL:
        combine = np.logical_or if op in (ReduceOp.Sum, ReduceOp.Max) else np.logical_and
    else:
        combine = {
            ReduceOp.Sum: np.add,
            ReduceOp.Average: np.add,
            ReduceOp.Min: np.minimum,
            ReduceOp.Max: np.maximum,
            ReduceOp.Product: np.multiply,
        }[op]
    terms = arrays if exact else [array.astype("float64") * prescale for array in arrays]
    result = terms[0]
    for term in terms[1:]:
        result = combine(result, term, dtype=result.dtype)
    by = (divisor or len(arrays)) if op == ReduceOp.Average else 1
    if not exact:
        return result / by * postscale
    factor = (prescale ** len(arrays) if op == ReduceOp.Product else prescale) * postscale
    if factor != 1.0:  # all at once, toward zero, clamped to the type
        limits = np.iinfo(dtype)
        scaled = np.trunc(result.astype("float64") * factor / by)
        return np.clip(scaled, limits.min, limits.max).astype(dtype)
    # Toward zero: NumPy's // rounds down.
    return result if by == 1 else (np.sign(result) * (np.abs(result) // by)).astype(dtype)


def adasum(arrays: list[Any]) -> Any:
    """Adasum of all ranks' arrays, as a tree of pairs, in float64.

    Args:
      arrays: in rank order, as many as a power of two.
    """
    if len(arrays) == 1:
        return arrays[0].astype("float64")
    half = len(arrays) // 2
    a, b = adasum(arrays[:half]), adasum(arrays[half:])
    dot = float(np.vdot(a, b))
    factors = [1 - dot / (2 * square) if (square := float(np.vdot(x, x))) else 1 for x in (a, b)]
    return factors[0] * a + factors[1] * b


def assert_reduced(got: Any, want: Any, what: object) -> None:
    """Fails unless `got` is what reduced() says, up to the rounding of its type."""
    assert got.shape == want.shape, what
    tolerance = _TOLERANCE.get(str(got.dtype), 0)
    np.testing.assert_allclose(
        got.astype("float64"),
        want.astype("float64"),
        rtol=tolerance,
        atol=tolerance,
        err_msg=str(what),
    )


def rows_kept(array: Any, rank: int, size: int) -> Any:
    """The rows that a reducescatter leaves on `rank`: the first ranks get one more."""
    each, more = divmod(array.shape[0], size)
    begin = each * rank + min(rank, more)
    return array[begin : begin + each + (rank < more)]
