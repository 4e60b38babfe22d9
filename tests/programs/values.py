"""Tensors of programs, and what collectives make of them, in NumPy.  Pure.

Integers are reduced exactly in their type; floats in float64, to be compared with a tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from tests.programs.program import Call

__all__ = ["Array", "dtype_of", "inputs", "reduced", "share", "tolerance"]

Array = np.ndarray[Any, Any]

# One rounding to the type of what was computed in float32 at least, for elements of size 1 and
# a few ranks.
_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-12}

_COMBINE: dict[str, np.ufunc] = {
    "Sum": np.add,
    "Average": np.add,
    "Min": np.minimum,
    "Max": np.maximum,
    "Product": np.multiply,
}


def dtype_of(name: str) -> np.dtype[Any]:
    """The element type of that name."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def inputs(call: Call, rank: int) -> list[Array]:
    """The tensors of a rank's call, the same wherever they are made."""
    dtype = dtype_of(call.dtype)
    made = []
    for number, shape in enumerate(call.shapes):
        random = np.random.Generator(np.random.PCG64([call.seed, rank, number]))
        array: Array
        if dtype.kind == "b":
            array = np.asarray(random.integers(0, 2, shape))
        elif dtype.kind in "iu":
            # Sums of one in four leave the range of the type, up to 32 bits.
            most = min(int(np.iinfo(dtype).max), 2**31) if call.seed % 4 == 3 else 9
            least = 0 if dtype.kind == "u" else -most
            array = np.asarray(random.integers(least, most, shape, endpoint=True))
        else:
            array = np.asarray(random.standard_normal(shape))
        made.append(array.astype(dtype))
    return made


def reduced(call: Call, arrays: Sequence[Array], members: int) -> Array:
    """The reduction of what the ranks gave that took part.

    Args:
      call: names the reduction and its factors.
      arrays: of one shape and dtype, in rank order.
      members: ranks of the process set, by which an Average divides.

    Returns:
      An array of the same dtype; of floats, float64.
    """
    dtype = arrays[0].dtype
    if dtype.kind == "b":
        any_or_all = np.any if call.op in ("Sum", "Max") else np.all
        return np.asarray(any_or_all(arrays, axis=0))
    divisor = members if call.op == "Average" else 1
    if dtype.kind not in "iu":
        scaled = [array.astype("float64") * call.prescale for array in arrays]
        return np.asarray(_combined(call.op, scaled) * call.postscale / divisor)
    prescale = call.prescale ** (len(arrays) if call.op == "Product" else 1)
    op = call.op
    if prescale < 0:  # it turns the smallest into the largest
        op = {"Min": "Max", "Max": "Min"}.get(op, op)
    exact = _combined(op, arrays)
    factor = prescale * call.postscale
    if factor == 1.0:
        # Toward zero, where NumPy's // rounds down; in Python's integers, which have no bounds.
        divided = [abs(int(x)) // divisor * (1 if x >= 0 else -1) for x in exact.flat]
        return np.array(divided, dtype).reshape(exact.shape)
    bounds = np.iinfo(dtype)
    numbers = [int(np.trunc(float(x) * factor / divisor)) for x in exact.flat]
    clamped = [min(max(x, int(bounds.min)), int(bounds.max)) for x in numbers]
    return np.array(clamped, dtype).reshape(exact.shape)


def _combined(op: str, arrays: Sequence[Array]) -> Array:
    result = arrays[0]
    with np.errstate(over="ignore"):
        for array in arrays[1:]:
            result = np.asarray(_COMBINE[op](result, array, dtype=result.dtype))
    return result


def share(rows: int, place: int, members: int) -> slice:
    """The rows of a reducescatter that member number `place` keeps."""
    each, more = divmod(rows, members)
    begin = each * place + min(place, more)
    return slice(begin, begin + each + (place < more))


def tolerance(call: Call, ranks: int) -> float:
    """How far a result may be from `reduced`, relative and absolute; 0 for exact types."""
    if call.dtype not in _TOLERANCE:
        return 0.0
    prescale = abs(call.prescale) ** (ranks if call.op == "Product" else 1)
    return _TOLERANCE[call.dtype] * max(1.0, prescale * abs(call.postscale))
