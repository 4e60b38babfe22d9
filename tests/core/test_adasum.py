"""Adasum (arXiv:2006.02924) over N processes, against its definition in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.reduce_ops import ReduceOp
from tests.core import client
from tests.core.reference import adasum, assert_reduced, of_rank
from tests.harness.ranks import run_ranks

pytestmark = pytest.mark.usefixtures("transport")
_DTYPES = ("float16", client.DTYPES[8], "float32", "float64")
_TOLERANCE = {"float16": 5e-3, "bfloat16": 5e-2, "float32": 1e-5, "float64": 1e-13}
_SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (3, 5), (20_000,)]


def _start(arrays: Any, name: str, **fields: Any) -> client.Handle:
    return client.allreduce(arrays, name, ReduceOp.Adasum, **fields)


def _every_dtype() -> list[bytes]:
    basics.init()
    rank, size = basics.rank(), basics.size()
    bits = []
    for dtype in _DTYPES:
        everyone = [[of_rank(r, s, dtype, 5) for s in _SHAPES] for r in range(size)]
        # Alone, together in flight, and in a group: each tensor by itself.
        handles = [_start(mine, f"{dtype}{s}") for mine, s in zip(everyone[rank], _SHAPES)]
        group = _start(everyone[rank], f"{dtype}group", grouped=True).wait()
        for place, handle in enumerate(handles):
            got = handle.wait()
            want = adasum([arrays[place] for arrays in everyone])
            # 16-bit floats are rounded once for each of log2(size) steps.
            tolerance = _TOLERANCE[str(got.dtype)]
            np.testing.assert_allclose(
                got.astype("float64"), want, rtol=tolerance, atol=tolerance, err_msg=str(dtype)
            )
            assert got.tobytes() == group[place].tobytes()
            bits.append(got.tobytes())
    scaled = _start(np.float32([1, 2]) * (rank + 1), "scaled", prescale=2.0, postscale=0.5).wait()
    want = adasum([np.float32([1, 2]) * (r + 1) for r in range(size)])
    assert_reduced(scaled, want, "factors")  # Adasum of twice the tensors is twice as much
    zeros = _start(np.zeros(3, "float32") if rank else np.ones(3, "float32"), "zeros").wait()
    np.testing.assert_array_equal(zeros, np.ones(3))
    return bits


@pytest.mark.parametrize("size", [1, 2, 4])
def test_adasum_is_what_it_is_by_definition_and_the_same_bits_everywhere(size: int) -> None:
    first, *others = run_ranks(_every_dtype, size)
    assert all(other == first for other in others)


@pytest.mark.parametrize("threshold", ["0", "1000"])
def test_a_tensor_above_the_fusion_threshold_stays_whole(threshold: str) -> None:
    run_ranks(_large, 2, env={"HOROVOD_FUSION_THRESHOLD": threshold})


def _large() -> None:
    basics.init()
    everyone = [of_rank(r, (300_000,), "float32", 6) for r in range(2)]
    got = _start(everyone[basics.rank()], "x").wait()
    assert_reduced(got, adasum(everyone), "large")


def _wrong() -> None:
    basics.init()
    for arrays, op, words in (
        (np.ones(3, "float32"), client.allreduce, "1, 2, 4, 8 ... ranks, not 3"),
        (np.ones(3, "int32"), client.allreduce, "floating types"),
        (np.ones(3, "float32"), client.reducescatter, "only an allreduce"),
    ):
        with pytest.raises(core.CoreError, match=words) as error:
            op(arrays, "x", ReduceOp.Adasum).wait()
        assert error.value.code == core.INVALID_ARGUMENT
        client.barrier(f"after {words}").wait()
    # One rank alone asks for it: the others hear of it.
    with pytest.raises(core.CoreError, match="2, 4, 8") as error:
        op = ReduceOp.Adasum if basics.rank() == 1 else ReduceOp.Sum
        client.allreduce(np.ones(3, "float32"), "y", op).wait()
    alone = basics.rank() == 1
    assert error.value.code == (core.INVALID_ARGUMENT if alone else core.FAILED_PRECONDITION)
    np.testing.assert_array_equal(client.allreduce(np.ones(1), "y").wait(), [3.0])


def test_what_adasum_cannot_do_is_an_error() -> None:
    run_ranks(_wrong, 3)
