"""What goes wrong while ranks have joined, and that all works again afterwards."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.process_sets import ProcessSet
from tests.core import client, hosts
from tests.core.joining import error_of, everybody, join_last
from tests.harness.ranks import run_ranks

CANCELLED, FAILED_PRECONDITION = 1, 3


def _impossible(per_host: int) -> list[tuple[int, str]]:
    """Rank 0 joins; the others try what cannot go on without it."""
    rank = hosts.init(per_host, [ProcessSet([0, 1]), ProcessSet([1, 2])])
    told = []
    for _ in range(2):  # again, with what is cached
        everybody()
        assert client.broadcast(np.ones(2), 0, "b").wait().tolist() == [1, 1]
        if rank < 2:
            assert client.allreduce(np.float32(1), "s", process_set=1).wait() == 2
        if rank > 0:
            told.append(error_of(client.broadcast(np.ones(2), 0, "b")))
            assert client.broadcast(np.full(2, rank), 1, "from 1").wait().tolist() == [1, 1]
        if rank == 1:
            told.append(error_of(client.allreduce(np.float32(1), "s", process_set=1)))
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
    told = error_of(waiting) if waiting is not None else None
    client.join().wait()
    if rank < 2:
        assert client.allreduce(np.float32(1), "s", process_set=1).wait() == 2
    return told


@pytest.mark.usefixtures("transport")
def test_who_waits_for_a_rank_that_joins_is_told() -> None:
    results = run_ranks(_waiting_when_it_joins, 3)
    code, text = results[1]
    assert code == FAILED_PRECONDITION and "rank 0" in text and "has joined" in text


def _wait_for(file: Path) -> None:
    deadline_s = time.monotonic() + 30
    while not file.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def _cancelled(done: Path) -> tuple[int, str, int]:
    """Rank 0 takes its join back, which is an error to those who join."""
    basics.init()
    if basics.rank() == 0:
        join = client.join()
        core.load().hvd_cancel(join.id)
        code, text = error_of(join)
        done.touch()
    else:
        _wait_for(done)  # what they called before would run without rank 0
        code, text = error_of(client.join())
    everybody()
    return code, text, join_last(1)


@pytest.mark.usefixtures("transport")
def test_a_join_that_is_cancelled_is_none(tmp_path: Path) -> None:
    for rank, (code, text, last) in enumerate(run_ranks(_cancelled, 3, tmp_path / "done")):
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
        _wait_for(tried)
        client.join().wait()
        code, text = error_of(client.join())
    everybody()
    return code, text, join_last(1)


@pytest.mark.usefixtures("transport")
def test_two_joins_at_once_are_anerror_of(tmp_path: Path) -> None:
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
    return error_of(join)


@pytest.mark.usefixtures("transport")
def test_a_rank_that_ends_instead_of_joining_is_named() -> None:
    results = run_ranks(_one_ends, 3)
    for rank in (0, 2):
        code, text = results[rank]
        assert code == core.SHUTDOWN
        assert "rank 1" in text and "ended in order" in text


def _never_match() -> tuple[int, str, int]:
    """Rank 0 joins, and the names of the others do not match."""
    basics.init()
    rank = basics.rank()
    handle = client.allreduce(np.float32(1), f"of {rank}") if rank else client.join()
    code, text = error_of(handle)
    everybody()
    return code, text, join_last(1)


@pytest.mark.usefixtures("transport")
def test_names_that_never_match_are_told_to_those_that_joined() -> None:
    for code, text, last in run_ranks(_never_match, 3, env={"HOROVOD_MISMATCH_TIME_SECONDS": "1"}):
        assert code == FAILED_PRECONDITION
        assert (
            "rank 1 waits in allreduce 'of 1'" in text
            and "rank 2 waits in allreduce 'of 2'" in text
        )
        assert last == 1


def _one_dies() -> tuple[int, str]:
    basics.init()
    if basics.rank() == 1:
        client.allreduce(np.float32(1), "sync").wait()
        os.kill(os.getpid(), signal.SIGKILL)
    if basics.rank() == 0:
        return error_of(client.join())
    client.allreduce(np.float32(1), "sync").wait()
    return error_of(client.allreduce(np.ones(3), "x"))


@pytest.mark.usefixtures("transport")
def test_a_rank_that_dies_is_told_to_those_that_joined() -> None:
    results = run_ranks(_one_dies, 3, may_die=[1])
    for rank in (0, 2):
        code, text = results[rank]
        assert code == core.PEER_LOST and "rank 1" in text


def _bad_knob() -> str:
    with pytest.raises(ValueError) as error:
        basics.init()
    return str(error.value)


def test_a_wrong_knob_is_named() -> None:
    [text] = run_ranks(_bad_knob, 1, env={"HOROVOD_JOIN_AVERAGE": "some"})
    assert "HOROVOD_JOIN_AVERAGE is 'some'" in text and "contributing" in text
