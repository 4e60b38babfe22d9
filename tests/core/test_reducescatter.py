"""reducescatter over N processes: element types, reductions, factors, rows that do not divide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.reduce_ops import ReduceOp
from tests.core import client, hosts
from tests.core.reference import OPS, assert_reduced, of_rank, reduced, rows_kept
from tests.harness.ranks import run_ranks

BOOL = np.dtype("bool")
FAILED_PRECONDITION = 3
# Rows that divide, that do not, fewer than ranks, none; rows of nothing; more than a block.
SHAPES: list[tuple[int, ...]] = [(84,), (11, 3), (2, 2), (1,), (0, 4), (5, 0), (7001, 10)]
FACTORS = [(0.5, 1.0), (1.0, 0.25), (3.0, -0.5), (-2.0, 1.0)]


def _expect(op: ReduceOp, everyone: list[Any], name: str, **factors: Any) -> None:
    rank, size = basics.rank(), basics.size()
    got = client.reducescatter(everyone[rank], name, op, **factors).wait()
    assert got.dtype == everyone[0].dtype
    want = rows_kept(reduced(op, everyone, **factors), rank, size)
    assert_reduced(got, want, (name, everyone[0].shape, op, factors))


def _check_everything(per_host: int) -> None:
    hosts.init(per_host)
    size = basics.size()
    for seed, dtype in enumerate(client.DTYPES):
        for shape in SHAPES:
            everyone = [of_rank(r, shape, dtype, seed) for r in range(size)]
            for op in OPS:
                if dtype != BOOL or op != ReduceOp.Average:
                    _expect(op, everyone, f"{dtype}{shape}{op}")
        if dtype == BOOL:
            continue
        for prescale, postscale in FACTORS:
            for op in OPS:
                everyone = [of_rank(r, (11, 3), dtype, seed) for r in range(size)]
                _expect(op, everyone, f"f{dtype}", prescale=prescale, postscale=postscale)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 3, 7])
def test_every_dtype_reduction_and_number_of_rows(size: int) -> None:
    run_ranks(_check_everything, size, size, timeout_s=240)


def test_between_hosts() -> None:
    run_ranks(_check_everything, 4, 2, timeout_s=240)


@pytest.mark.usefixtures("transport")
def test_small_blocks_change_nothing() -> None:
    run_ranks(_check_everything, 3, 3, timeout_s=240, env={"HOROVOD_STAGING_BYTES": "4096"})


def _errors() -> list[tuple[int, str]]:
    basics.init()
    rank = basics.rank()
    calls: list[tuple[Any, dict[str, Any]]] = [
        (np.zeros((3, 2) if rank else (2, 2), np.float32), {}),
        (np.zeros(3, np.float32), {"op": ReduceOp.Max if rank else ReduceOp.Min}),
        (np.zeros(3, np.float32), {"postscale": 2.0 if rank else 1.0}),
        (np.zeros((2,) if rank else (), np.float32), {}),
        (np.zeros(2, bool), {"op": ReduceOp.Average}),
        (np.zeros(2, bool), {"prescale": 2.0}),
        (np.zeros(2, np.float32), {"prescale": float("nan")}),
    ]
    told = []
    for array, fields in calls:
        with pytest.raises(core.CoreError) as error:
            client.reducescatter(array, "x", **fields).wait()
        told.append((error.value.code, str(error.value)))
        one = client.reducescatter(np.ones(basics.size(), np.float32), "x").wait()
        assert one.tolist() == [basics.size()]
    return told


@pytest.mark.usefixtures("transport")
def test_errors_and_that_the_name_works_again() -> None:
    first, second = run_ranks(_errors, 2)
    wrong, alone = FAILED_PRECONDITION, core.INVALID_ARGUMENT
    assert [code for code, _ in first] == [wrong, wrong, wrong, alone, alone, alone, alone]
    assert [code for code, _ in second] == [wrong, wrong, wrong, wrong, alone, alone, alone]
    for told in (first, second):
        assert "rank 1 sent shape [3, 2], rank 0 sent [2, 2]" in told[0][1]
        assert "rank 1 sent op Max, rank 0 sent Min" in told[1][1]
        assert "rank 1 sent postscale_factor 2, rank 0 sent 1" in told[2][1]
        assert "a scalar has no rows to scatter" in told[3][1]
        assert "bool has no Average" in told[4][1]
        assert "bool has no factors" in told[5][1]
        assert "neither may be NaN" in told[6][1]
    assert "rank 0" in second[3][1]
