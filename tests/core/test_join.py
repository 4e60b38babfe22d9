"""Ranks that join: the others go on without them until all have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from horovod.common import basics
from horovod.common.reduce_ops import ReduceOp
from tests.core import client, hosts
from tests.core.joining import everybody, join_last
from tests.core.reference import OPS, assert_reduced, of_rank, reduced, rows_kept
from tests.harness.ranks import run_ranks

CONTRIBUTING = {"HOROVOD_JOIN_AVERAGE": "contributing"}
BOOL = np.dtype("bool")


def _join_and_join_again(per_host: int) -> list[int]:
    hosts.init(per_host)
    size = basics.size()
    told = [int(client.join().wait())]  # first of all calls, and all at once
    for last in (*range(size), 0):
        everybody()
        told.append(join_last(last))
    everybody()
    return told


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 3, 4])
def test_the_result_is_the_rank_that_joined_last(size: int) -> None:
    first, *others = run_ranks(_join_and_join_again, size, size)
    assert all(told == first for told in others)
    assert first[0] in range(size)
    assert first[1:] == [*range(size), 0]


def test_between_hosts() -> None:
    first, *others = run_ranks(_join_and_join_again, 6, 2)
    assert all(told == first for told in others)
    assert first[1:] == [*range(6), 0]


def _steps_of(rank: int) -> int:
    return 2 + 3 * rank


def _reductions(step: int, there: list[int], contributing: bool) -> None:
    """Starts every reduction at once, so that some are fused."""
    rank, size = basics.rank(), basics.size()
    divisor = len(there) if contributing else size
    running = []
    for number, dtype in enumerate(client.DTYPES):
        for op in OPS:
            if dtype == BOOL and op == ReduceOp.Average:
                continue
            for shape in [(), (7, 2), (0,)] if number != 9 else [(20_001,)]:
                arrays = {r: of_rank(r, shape, dtype, step) for r in there}
                want = reduced(op, list(arrays.values()), divisor=divisor)
                name = f"{dtype}{op}{shape}"
                running.append((client.allreduce(arrays[rank], name, op), want, name))
                if shape:
                    kept = rows_kept(want, rank, size)
                    handle = client.reducescatter(arrays[rank], f"s{name}", op)
                    running.append((handle, kept, f"s{name}"))
    group = {r: [of_rank(r, (n,), "float32", step) for n in (3, 0, 400)] for r in there}
    grouped = client.allreduce(group[rank], "group", ReduceOp.Average, grouped=True)
    for handle, want, name in running:
        assert_reduced(handle.wait(), want, (name, step, there))
    for i, got in enumerate(grouped.wait()):
        want = reduced(ReduceOp.Average, [group[r][i] for r in there], divisor=divisor)
        assert_reduced(got, want, ("group", i, step))


def _movements(step: int, there: list[int]) -> None:
    rank, size = basics.rank(), basics.size()

    def rows(r: int) -> Any:
        return np.full(((r + step) % 3, 2), r, np.int16)

    got = client.allgather(rows(rank), "rows").wait()
    np.testing.assert_array_equal(got, np.concatenate([rows(r) for r in there]))
    outputs = client.allgather([rows(rank), rows(rank + 1)], "rows of two", grouped=True).wait()
    np.testing.assert_array_equal(outputs[1], np.concatenate([rows(r + 1) for r in there]))
    # What goes to a rank that has joined goes nowhere.
    splits = [(rank + r + step) % 3 for r in range(size)]
    sent = np.repeat(10 * rank + np.arange(size), splits).astype(np.int32)
    handle = client.alltoall(sent, "all", splits)
    received = [(rank + r + step) % 3 if r in there else 0 for r in range(size)]
    want = np.repeat(10 * np.arange(size) + rank, received)
    np.testing.assert_array_equal(handle.wait(), want)
    assert handle.received_splits == received
    root = there[step % len(there)]
    assert client.broadcast(np.float64(rank), root, f"from {root}").wait() == root
    client.barrier().wait()


def _uneven(per_host: int, contributing: bool) -> int:
    rank = hosts.init(per_host)
    size = basics.size()
    last = -1
    for _ in range(2):  # the second time with what the first has put into the cache
        for step in range(_steps_of(rank)):
            there = [r for r in range(size) if step < _steps_of(r)]
            if step % 3 == 0:
                _reductions(step, there, contributing)
            _movements(step, there)
        last = int(client.join().wait())
    return last


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 3])
def test_everything_goes_on_without_those_that_joined(size: int) -> None:
    # Who still works when the others have joined has not joined itself.
    assert run_ranks(_uneven, size, size, False, timeout_s=240) == [size - 1] * size


@pytest.mark.usefixtures("transport")
def test_averages_by_who_contributes() -> None:
    assert run_ranks(_uneven, 3, 3, True, timeout_s=240, env=CONTRIBUTING) == [2] * 3


@pytest.mark.parametrize("env", [{}, {"HOROVOD_CACHE_CAPACITY": "0"}], ids=["cache", "no cache"])
def test_everything_goes_on_between_hosts(env: dict[str, str]) -> None:
    assert run_ranks(_uneven, 4, 2, False, timeout_s=240, env=env) == [3] * 4


def _large() -> None:
    """A tensor in many parts, begun by all and by all but the first rank."""
    basics.init()
    rank, size = basics.rank(), basics.size()
    ones = np.ones(300_000, np.float32)
    assert client.allreduce(ones, "x").wait().tolist() == [size] * len(ones)
    if rank > 0:
        got = client.allreduce(ones, "x").wait()
        assert got.tolist() == [size - 1] * len(ones)
    client.join().wait()
    assert client.allreduce(ones, "x").wait().tolist() == [size] * len(ones)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [2, 3])
def test_a_tensor_in_parts(size: int) -> None:
    run_ranks(_large, size, env={"HOROVOD_FUSION_THRESHOLD": "262144"})


def _one_under_way(per_host: int) -> list[float]:
    """A rank that joins takes part in what it began before."""
    rank = hosts.init(per_host)
    results = []
    for _ in range(3):
        handle = client.allreduce(np.float32(1), "begun")
        if rank > 0:
            results.append(float(handle.wait()))
        client.join().wait()
        if rank == 0:
            results.append(float(handle.wait()))
    return results


@pytest.mark.usefixtures("transport")
def test_what_was_begun_before_the_join_counts() -> None:
    assert run_ranks(_one_under_way, 3, 3) == [[3.0] * 3] * 3


def test_what_was_begun_before_the_join_counts_between_hosts() -> None:
    assert run_ranks(_one_under_way, 4, 2) == [[4.0] * 3] * 4


def _left_alone() -> list[float]:
    """What only a rank has called that joined then: it runs once the others have joined too."""
    basics.init()
    rank = basics.rank()
    handle = client.allreduce(np.float32(5), f"of {rank}", ReduceOp.Max)
    group = client.allgather([np.full(2, rank)] * 2, f"rows of {rank}", grouped=True)
    client.join().wait()
    assert [rows.tolist() for rows in group.wait()] == [[rank, rank]] * 2
    return [float(handle.wait())]


@pytest.mark.usefixtures("transport")
def test_what_the_others_never_call_runs_without_them() -> None:
    assert run_ranks(_left_alone, 3) == [[5.0]] * 3
