"""Groups of tensors: one request, of which all runs or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.reduce_ops import ReduceOp
from tests.core import client, hosts
from tests.core.reference import OPS, assert_reduced, of_rank, reduced, rows_kept
from tests.harness.ranks import run_ranks

FAILED_PRECONDITION = 3
SMALL_THRESHOLD = {"HOROVOD_FUSION_THRESHOLD": "65536"}
# 0, 1 and several elements, scalars and more than one part, by turns.
MANY: list[tuple[int, ...]] = [
    [(), (0,), (1,), (5, 3), (3, 0, 2), (1000,)][i % 6] for i in range(200)
]
GROUPS: dict[str, list[tuple[int, ...]]] = {
    "one": [(5,)],
    "one scalar": [()],
    "nothing in it": [(0,), (2, 0)],
    "two hundred": MANY,
    "larger than the threshold": [(30_001,), (), (0,), (70_001,), (1,), (3, 20_000)],
}


def _check_allreduce() -> None:
    rank, size = basics.rank(), basics.size()
    for number, dtype in enumerate(client.DTYPES):
        for what, shapes in GROUPS.items():
            if what == "two hundred" and number % 4:
                continue
            every = [[of_rank(r, s, dtype, i) for i, s in enumerate(shapes)] for r in range(size)]
            op = OPS[number % len(OPS)] if dtype != np.dtype("bool") else ReduceOp.Max
            outputs = client.allreduce(every[rank], f"{what}{number}", op, grouped=True).wait()
            for i, got in enumerate(outputs):
                assert_reduced(got, reduced(op, [of[i] for of in every]), (what, i, dtype, op))
    everyone = [[of_rank(r, (9,), "int32", i) for i in range(3)] for r in range(size)]
    factors: dict[str, Any] = {"prescale": 0.5, "postscale": 3.0}
    outputs = client.allreduce(everyone[rank], "factors", grouped=True, **factors).wait()
    for i, got in enumerate(outputs):
        assert_reduced(got, reduced(ReduceOp.Sum, [of[i] for of in everyone], **factors), i)


def _check_allgather() -> None:
    rank, size = basics.rank(), basics.size()

    def tensors(r: int, count: int, step: int) -> list[Any]:
        """Tensor i of rank r has (r + i + step) % 4 rows of (i % 3) elements."""
        return [of_rank(r, ((r + i + step) % 4, i % 3), "float32", i) for i in range(count)]

    for count in (1, 2, 200):
        for step in range(5):  # one name: from the second step on it is cached
            every = [tensors(r, count, step) for r in range(size)]
            outputs = client.allgather(every[rank], f"gather{count}", grouped=True).wait()
            for i, got in enumerate(outputs):
                np.testing.assert_array_equal(got, np.concatenate([of[i] for of in every]))


def _check_reducescatter() -> None:
    rank, size = basics.rank(), basics.size()
    shapes = [(11, 3), (1,), (0, 4), (5, 0), (size,), (7001, 10)]
    for number, dtype in enumerate(client.DTYPES):
        every = [[of_rank(r, s, dtype, i) for i, s in enumerate(shapes)] for r in range(size)]
        outputs = client.reducescatter(
            every[rank], f"scatter{number}", ReduceOp.Max, grouped=True
        ).wait()
        for i, got in enumerate(outputs):
            want = rows_kept(reduced(ReduceOp.Max, [of[i] for of in every]), rank, size)
            assert_reduced(got, want, (shapes[i], dtype))


def _check_everything(per_host: int) -> None:
    hosts.init(per_host)
    _check_allreduce()
    _check_allgather()
    _check_reducescatter()


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 3, 4])
def test_every_group_is_right(size: int) -> None:
    run_ranks(_check_everything, size, size, timeout_s=240, env=SMALL_THRESHOLD)


@pytest.mark.parametrize(
    "env",
    [{}, {"HOROVOD_DISABLE_GROUP_FUSION": "1"}, {"HOROVOD_FUSION_THRESHOLD": "0"}],
    ids=["as it comes", "groups alone", "everything alone"],
)
def test_every_group_is_right_whatever_is_fused(env: dict[str, str]) -> None:
    run_ranks(_check_everything, 3, 3, timeout_s=240, env=env)


def test_between_hosts() -> None:
    run_ranks(_check_everything, 4, 2, timeout_s=240, env=SMALL_THRESHOLD)


def _calls_of_ten_groups() -> int:
    basics.init()
    tensors = [np.ones(3, np.float32)] * 5
    before = core.counters()["calls"]
    handles = [client.allreduce(tensors, f"g{i}", grouped=True) for i in range(10)]
    for handle in handles:
        assert [got.tolist() for got in handle.wait()] == [[2.0] * 3] * 5
    return core.counters()["calls"] - before


@pytest.mark.usefixtures("transport")
def test_without_group_fusion_each_group_is_one_call() -> None:
    env = {"HOROVOD_DISABLE_GROUP_FUSION": "1"}
    assert run_ranks(_calls_of_ten_groups, 2, env=env) == [10, 10]


def _nothing_before_all() -> bool:
    basics.init()
    tensors = [np.ones(3, np.float32), np.ones(100_000, np.float32)]
    if basics.rank() == 0:
        group = client.allgather(tensors, "group", grouped=True)
    # Rank 0's group is announced before this, and rank 1 comes to it afterwards.
    client.allreduce(np.float32(1), "sync").wait()
    early = basics.rank() == 0 and any(output is not None for output in group.outputs)
    client.allreduce(np.float32(1), "sync").wait()
    if basics.rank() == 1:
        group = client.allgather(tensors, "group", grouped=True)
    assert [got.shape for got in group.wait()] == [(6,), (200_000,)]
    return early


@pytest.mark.usefixtures("transport")
def test_nothing_of_a_group_runs_before_all_have_it() -> None:
    assert run_ranks(_nothing_before_all, 2) == [False, False]


def _wrong(kind: str) -> tuple[int, str]:
    """Rank 1 has another group than rank 0; then all is as before."""
    basics.init()
    rank = basics.rank()
    good = [np.ones(2, np.float32), np.ones((3, 2), np.float32)]
    other: dict[str, Any] = {
        "a tensor more": [*good, np.ones(1, np.float32)],
        "another shape": [good[0], np.ones((3, 5), np.float32)],
        "another dtype": [array.astype("float64") for array in good],
        "no group": good[0],
        "a scalar": [good[0], np.float32(1)],
        "a tensor of another dtype more": good,
        "another dtype for one": good[:1],
        "none": [],
    }
    others = {"a tensor of another dtype more": 1, "another dtype for one": 1}.get(kind, 0)
    with pytest.raises(core.CoreError) as error:
        mine = other[kind] if rank else good
        grouped = isinstance(mine, list)
        client.allgather(mine, "x", grouped=grouped, num_others=others * rank).wait()
    outputs = client.allgather(good, "x", grouped=True).wait()
    assert [got.shape for got in outputs] == [(4,), (6, 2)]
    return error.value.code, str(error.value)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize(
    ("kind", "alone", "words"),
    [
        ("a tensor more", False, "rank 1 sent tensors: a group of 3, rank 0 sent a group of 2"),
        (
            "a tensor of another dtype more",
            False,
            "rank 1 sent tensors: 2 float32 of a group of 3, rank 0 sent a group of 2",
        ),
        (
            "another dtype for one",
            False,
            "rank 1 sent tensors: 1 float32 of a group of 2, rank 0 sent a group of 2",
        ),
        ("another shape", False, "rank 1 sent shape of tensor 1 [3, 5], rank 0 sent [3, 2]"),
        ("another dtype", False, "rank 1 sent dtype float64, rank 0 sent float32"),
        ("no group", False, "rank 1 sent tensors: no group, rank 0 sent a group of 2"),
        ("a scalar", True, "tensor 1 is a scalar and has no rows to gather"),
        ("none", True, "0 tensors cannot be one request"),
    ],
)
def test_groups_that_differ(kind: str, alone: bool, words: str) -> None:
    for rank, (code, text) in enumerate(run_ranks(_wrong, 2, kind)):
        assert code == (core.INVALID_ARGUMENT if alone and rank == 1 else FAILED_PRECONDITION)
        assert words in text and "allgather 'x'" in text
