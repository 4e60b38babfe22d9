"""Ranks that say they are on several hosts: the tree of ranks, TCP between hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.process_sets import ProcessSet
from tests.core import client, hosts
from tests.harness.ranks import run_ranks

NOTICED_WITHIN_S = 5.0


def _collectives(per_host: int) -> bytes:
    rank = hosts.init(per_host, [ProcessSet([0, 1]), ProcessSet([1, 2])])
    size = basics.size()
    for step in range(5):
        array = np.random.default_rng([rank, step]).standard_normal(70_000).astype(np.float32)
        reduced = client.allreduce(array, "x")
        gathered = client.allgather(np.full((rank + step, 2), rank), "rows")
        sets = [s for s, ranks in ((1, (0, 1)), (2, (1, 2))) if rank in ranks]
        sums = [client.allreduce(np.float32(rank), "y", process_set=s) for s in sets]
        want = np.concatenate([np.full((r + step, 2), r) for r in range(size)])
        np.testing.assert_array_equal(gathered.wait(), want)
        assert [float(s.wait()) for s in sums] == [{1: 1.0, 2: 3.0}[s] for s in sets]
        root = client.broadcast(np.array([rank + step]), size - 1, "root").wait()
        assert root == [size - 1 + step]
    return reduced.wait().tobytes()


@pytest.mark.parametrize(("size", "per_host"), [(4, 1), (4, 2), (6, 3)])
def test_every_collective_over_hosts(size: int, per_host: int) -> None:
    results = run_ranks(_collectives, size, per_host, timeout_s=120)
    assert len(set(results)) == 1
    # As on one host: hosts do not change a bit.
    assert results[0] == run_ranks(_collectives, size, size, timeout_s=120)[0]


def _steady() -> int:
    hosts.init(3)
    for _ in range(3):
        client.allreduce(np.float32(1), "x").wait()
    client.barrier().wait()
    before = core.counters()["frames_received"]
    for _ in range(100):
        client.allreduce(np.float32(1), "x").wait()
    return core.counters()["frames_received"] - before


def test_the_coordinator_hears_one_message_per_host() -> None:
    received = run_ranks(_steady, 6)
    # A message per step from each of its two neighbors on the host, and one from the other
    # host, where each of five ranks could send one.  A rank that is late by the time that its
    # leader holds bits back makes the leader speak rank by rank.
    assert 297 <= received[0] < 400
    # The leader of the other host: two members, and the answers from above.
    assert 297 <= received[3] < 400


def _error_of(name: str) -> tuple[int, str, float]:
    start_s = time.monotonic()
    with pytest.raises(core.CoreError) as error:
        while True:
            client.allreduce(np.ones(1000, np.float32), name).wait()
    return error.value.code, str(error.value), time.monotonic() - start_s


def _killed(victim: int) -> tuple[int, str, float]:
    if hosts.init(2) == victim:
        client.allreduce(np.ones(1000, np.float32), "x").wait()
        os.kill(os.getpid(), signal.SIGKILL)  # the others may still be in the first
    return _error_of("x")


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_a_killed_rank_is_named_on_every_host(victim: int) -> None:
    results: list[Any] = run_ranks(_killed, 4, victim, may_die=[victim])
    for rank in set(range(4)) - {victim}:
        code, text, seconds = results[rank]
        assert code == core.PEER_LOST
        assert f"rank {victim} (host host{victim // 2}) is lost" in text
        assert seconds < NOTICED_WITHIN_S


def _leader_leaves() -> tuple[int, str] | None:
    rank = hosts.init(2, [ProcessSet([2, 3])])
    client.allreduce(np.float32(1), "x").wait()
    if rank in (2, 3):
        client.allreduce(np.float32(1), "y", process_set=1).wait()
    if rank == 2:
        basics.shutdown()
        return None
    code, text, _ = _error_of("x")
    return code, text


def test_the_first_rank_of_a_host_takes_the_others_of_its_host_along() -> None:
    results = run_ranks(_leader_leaves, 4)
    for rank in (0, 1, 3):
        code, text = results[rank]
        assert code == core.SHUTDOWN
        assert "rank 2 (host host1)" in text and "ended in order" in text


def _silent(stopped: int) -> tuple[int, str, float]:
    rank = hosts.init(2)
    client.allreduce(np.ones(1000, np.float32), "x").wait()
    if rank == stopped:
        me = os.getpid()
        subprocess.Popen(["sh", "-c", f"kill -STOP {me}; sleep 6; kill -CONT {me}"])
    return _error_of("x")


def test_a_silent_host_is_lost_after_the_heartbeat_time() -> None:
    env = {"HOROVOD_HEARTBEAT_TIMEOUT_SECONDS": "1.5"}
    results = run_ranks(_silent, 4, 2, env=env)
    for rank, (code, text, seconds) in enumerate(results):
        assert code == core.PEER_LOST, text
        if rank < 2:  # of the other host
            assert "rank 2 (host host1) is lost: silent for more than 1.5 s" in text
            assert 1.0 < seconds < 5.5
