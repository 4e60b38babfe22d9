"""Ranks that join: the others go on without them until all have."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import ReduceOp
from tests.core import client, hosts
from tests.core.reference import OPS, assert_reduced, of_rank, reduced, rows_kept
from tests.harness.ranks import run_ranks

CANCELLED, FAILED_PRECONDITION = 1, 3
CONTRIBUTING = {"HOROVOD_JOIN_AVERAGE": "contributing"}
BOOL = np.dtype("bool")


def _join_last(last: int) -> int:
    """All ranks join, `last` after all others; returns what the join says."""
    if basics.rank() == last:
        # The others have no part in it, so it runs once they have joined.
        assert client.allreduce(np.float32(1), "alone").wait() == 1
    return int(client.join().wait())


def _everybody() -> None:
    """All ranks can work together."""
    size = basics.size()
    assert client.allreduce(np.float32(1), "everybody").wait() == size
    assert client.allgather(np.zeros(2), "everybody's").wait().shape == (2 * size,)


def _join_and_join_again(per_host: int) -> list[int]:
    hosts.init(per_host)
    size = basics.size()
    told = [int(client.join().wait())]  # first of all calls, and all at once
    for last in (*range(size), 0):
        _everybody()
        told.append(_join_last(last))
    _everybody()
    return told


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
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
@pytest.mark.parametrize("size", [1, 2, 3, 4])
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


def _error(handle: client.Handle) -> tuple[int, str]:
    with pytest.raises(core.CoreError) as error:
        handle.wait()
    return error.value.code, str(error.value)


def _impossible(per_host: int) -> list[tuple[int, str]]:
    """Rank 0 joins; the others try what cannot go on without it."""
    rank = hosts.init(per_host, [ProcessSet([0, 1]), ProcessSet([1, 2])])
    told = []
    for _ in range(2):  # again, with what is cached
        _everybody()
        assert client.broadcast(np.ones(2), 0, "b").wait().tolist() == [1, 1]
        if rank < 2:
            assert client.allreduce(np.float32(1), "s", process_set=1).wait() == 2
        if rank > 0:
            told.append(_error(client.broadcast(np.ones(2), 0, "b")))
            assert client.broadcast(np.full(2, rank), 1, "from 1").wait().tolist() == [1, 1]
        if rank == 1:
            told.append(_error(client.allreduce(np.float32(1), "s", process_set=1)))
        if rank in (1, 2):  # a set without the one that joined
            assert client.allreduce(np.float32(1), "s", process_set=2).wait() == 2
        client.join().wait()
        assert client.broadcast(np.ones(2), 0, "b").wait().tolist() == [1, 1]
        if rank < 2:
            assert client.allreduce(np.float32(1), "s", process_set=1).wait() == 2
    return told


def _check_impossible(results: list[Any]) -> None:
    assert results[0] == []
    for rank, told in enumerate(results[1:], start=1):
        assert len(told) == (4 if rank == 1 else 2)
        for code, text in told:
            assert code == FAILED_PRECONDITION
            assert "rank 0" in text and "has joined and takes no part" in text
            assert "broadcast 'b'" in text or "allreduce 's'" in text
    sets = [text for _, text in results[1] if "'s'" in text]
    assert len(sets) == 2 and all("process set 1" in text for text in sets)


@pytest.mark.usefixtures("transport")
def test_what_cannot_go_on_without_a_rank_names_it() -> None:
    _check_impossible(run_ranks(_impossible, 3, 3))


def test_what_cannot_go_on_without_a_rank_names_it_between_hosts() -> None:
    _check_impossible(run_ranks(_impossible, 4, 2))


def _waiting_when_it_joins() -> tuple[int, str] | None:
    """Rank 1 waits for rank 0 in a smaller set, and rank 0 joins then."""
    basics.init(process_sets=[ProcessSet([0, 1])])
    rank = basics.rank()
    waiting = client.allreduce(np.float32(1), "s", process_set=1) if rank == 1 else None
    client.allreduce(np.float32(1), "sync").wait()
    told = _error(waiting) if waiting is not None else None
    client.join().wait()
    if rank < 2:
        assert client.allreduce(np.float32(1), "s", process_set=1).wait() == 2
    return told


@pytest.mark.usefixtures("transport")
def test_who_waits_for_a_rank_that_joins_is_told() -> None:
    results = run_ranks(_waiting_when_it_joins, 3)
    code, text = results[1]
    assert code == FAILED_PRECONDITION and "rank 0" in text and "has joined" in text


def _cancelled() -> tuple[int, str, int]:
    """Rank 0 takes its join back, which is an error to those who join."""
    basics.init()
    join = client.join() if basics.rank() == 0 else None
    if join is not None:
        core.load().hvd_cancel(join.id)
    client.allreduce(np.float32(1), "sync").wait()
    code, text = _error(join or client.join())
    _everybody()
    return code, text, _join_last(1)


@pytest.mark.usefixtures("transport")
def test_a_join_that_is_cancelled_is_none() -> None:
    for rank, (code, text, last) in enumerate(run_ranks(_cancelled, 3)):
        assert code == (FAILED_PRECONDITION if rank else CANCELLED)
        assert rank == 0 or "rank 0" in text
        assert last == 1


def _two_at_once(tried: Path) -> tuple[int, str, int]:
    """Rank 0 joins twice at once: its second join is none, and the others' second one fails."""
    basics.init()
    if basics.rank() == 0:
        join = client.join()
        with pytest.raises(core.CoreError) as error:
            client.join()
        code, text = error.value.code, str(error.value)
        tried.touch()
        join.wait()
    else:
        deadline_s = time.monotonic() + 30
        while not tried.exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        client.join().wait()
        code, text = _error(client.join())
    _everybody()
    return code, text, _join_last(1)


@pytest.mark.usefixtures("transport")
def test_two_joins_at_once_are_an_error(tmp_path: Path) -> None:
    for rank, (code, text, last) in enumerate(run_ranks(_two_at_once, 3, tmp_path / "tried")):
        assert code == (FAILED_PRECONDITION if rank else core.INVALID_ARGUMENT)
        assert "in flight already" in text and (rank == 0 or "rank 0" in text)
        assert last == 1


def _one_ends() -> tuple[int, str] | None:
    basics.init()
    if basics.rank() == 1:
        client.allreduce(np.float32(1), "sync").wait()
        basics.shutdown()
        return None
    join = client.join() if basics.rank() == 0 else None
    if basics.rank() == 2:
        client.allreduce(np.float32(1), "sync").wait()
        join = client.join()
    assert join is not None
    return _error(join)


@pytest.mark.usefixtures("transport")
def test_a_rank_that_ends_instead_of_joining_is_named() -> None:
    results = run_ranks(_one_ends, 3)
    for rank in (0, 2):
        code, text = results[rank]
        assert code == core.SHUTDOWN
        assert "rank 1" in text and "ended in order" in text


def _bad_knob() -> str:
    with pytest.raises(ValueError) as error:
        basics.init()
    return str(error.value)


def test_a_wrong_knob_is_named() -> None:
    [text] = run_ranks(_bad_knob, 1, env={"HOROVOD_JOIN_AVERAGE": "some"})
    assert "HOROVOD_JOIN_AVERAGE is 'some'" in text and "contributing" in text
