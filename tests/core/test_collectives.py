"""Every collective, element type and reduction over N processes, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from horovod.common import basics
from horovod.common.reduce_ops import ReduceOp
from tests.core import client
from tests.core.conftest import TRANSPORTS
from tests.core.reference import OPS, assert_reduced, of_rank, reduced
from tests.harness.ranks import run_ranks

SIZES = [2, 3, 4, 7]
SHAPES: list[tuple[int, ...]] = [(), (0,), (1,), (5,), (2, 3), (3, 0, 2), (1025,), (70001,)]
SMALL_STAGING = {"HOROVOD_STAGING_BYTES": "4096"}


def _check_everything() -> int:
    basics.init()
    rank, size = basics.rank(), basics.size()
    cells = 0
    for number, dtype in enumerate(client.DTYPES):
        for shape in SHAPES:
            everyone = [of_rank(r, shape, dtype, number) for r in range(size)]
            mine = everyone[rank]
            for op in OPS:
                if dtype == np.dtype("bool") and op == ReduceOp.Average:
                    continue
                got = client.allreduce(mine, f"{dtype}{shape}{op}", op).wait()
                assert got.dtype == dtype
                assert_reduced(got, reduced(op, everyone), (dtype, shape, op))
                cells += 1
            root = number % size
            got = client.broadcast(mine, root, f"b{dtype}{shape}").wait()
            np.testing.assert_array_equal(got, everyone[root])
            if shape:
                rows = [np.repeat(a[:1], r, axis=0) for r, a in enumerate(everyone)]
                got = client.allgather(rows[rank], f"g{dtype}{shape}").wait()
                np.testing.assert_array_equal(got, np.concatenate(rows))
    client.barrier().wait()
    return cells


def test_one_rank_alone() -> None:
    assert run_ranks(_check_everything, 1, timeout_s=240) == [len(SHAPES) * (10 * 5 + 4)]


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", SIZES)
def test_every_collective_dtype_and_reduction_is_right(size: int) -> None:
    cells = run_ranks(_check_everything, size, timeout_s=240)
    assert cells == [len(SHAPES) * (10 * 5 + 4)] * size


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [2, 3])
def test_small_blocks_change_nothing(size: int) -> None:
    run_ranks(_check_everything, size, timeout_s=240, env=SMALL_STAGING)


def _in_random_order(seed: int, rounds: int) -> bytes:
    """60 tensors, each rank in its own order; returns the bytes of all results of each round."""
    basics.init()
    rank = basics.rank()
    tensors = [
        of_rank(rank, (1 + 97 * t,), np.dtype("float16" if t % 3 else "float32"), t)
        for t in range(60)
    ]
    seen = set()
    for number in range(rounds):
        order = np.random.default_rng([seed, rank, number]).permutation(len(tensors))
        handles = {int(t): client.allreduce(tensors[t], f"t{t}", ReduceOp.Average) for t in order}
        seen.add(b"".join(handles[t].wait().tobytes() for t in range(len(tensors))))
    (only,) = seen
    return only


@pytest.mark.parametrize("size", [2, 3])
def test_the_same_bits_in_any_order_fusion_cache_and_transport(size: int) -> None:
    runs = []
    for seed, (threshold, capacity) in enumerate(
        [("0", "1024"), ("67108864", "1024"), ("5000", "0"), ("67108864", "20"), ("3000", "59")]
    ):
        for transport in TRANSPORTS:
            env = {
                "HOROVOD_FUSION_THRESHOLD": threshold,
                "HOROVOD_CACHE_CAPACITY": capacity,
                "HOROVOD_TRANSPORT": transport,
            }
            runs.append(run_ranks(_in_random_order, size, seed, 20, env=env))
    assert len({bits for run in runs for bits in run}) == 1


def _opposite_orders() -> float:
    basics.init()
    names = [f"n{i}" for i in range(200)]
    if basics.rank() % 2:
        names.reverse()
    handles = [client.allreduce(np.float32(1), name) for name in names]
    return float(sum(handle.wait() for handle in handles))


@pytest.mark.usefixtures("transport")
def test_two_ranks_may_enqueue_in_opposite_orders() -> None:
    assert run_ranks(_opposite_orders, 2) == [400.0, 400.0]


def _many() -> bool:
    basics.init()
    for i in range(10_000):
        assert client.allreduce(np.float32(i), "same").wait() == i * basics.size()
    handles = [client.allreduce(np.float32(i), f"m{i}") for i in range(2_000)]
    return all(handle.wait() == i * basics.size() for i, handle in enumerate(handles))


@pytest.mark.usefixtures("transport")
def test_ten_thousand_of_one_name_and_two_thousand_names_at_once() -> None:
    assert run_ranks(_many, 2, timeout_s=120) == [True, True]
