"""Tensors that wait: stall warnings, the end of the job when asked for, names that never match."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from horovod.common import basics, core
from tests.core import client
from tests.harness.ranks import run_ranks

FAILED_PRECONDITION = 3


@contextmanager
def _stderr() -> Iterator[list[str]]:
    """Collects what this process, its C++ threads included, writes to stderr meanwhile."""
    collected: list[str] = []
    saved = os.dup(2)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 2)
        try:
            yield collected
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            file.seek(0)
            collected.extend(line for line in file.read().splitlines() if "warning" in line)


def _one_is_late() -> list[str]:
    basics.init()
    for _ in range(2):  # the second time by a bit
        client.allreduce(np.ones(3), "grad").wait()
    with _stderr() as lines:
        if basics.rank() == 1:
            time.sleep(5.0)
        handles = [client.allreduce(np.ones(3), name) for name in ("grad", "other")]
        assert all(handle.wait().sum() == 3 * basics.size() for handle in handles)
    return lines


@pytest.mark.parametrize("size", [2, 3])
def test_a_stall_warns_again_and_again_and_names_both_sides(size: int) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.8"}
    lines = run_ranks(_one_is_late, size, env=env)
    assert not any(lines[1:])
    assert len(lines[0]) >= 2, lines[0]
    for line in lines[0]:
        assert "'grad'" in line and "'other'" in line
        assert "rank 1 (host localhost) (its last call: allreduce 'grad')" in line
        assert "rank 2" not in line


def test_stall_warnings_can_be_turned_off() -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.8", "HOROVOD_STALL_CHECK_DISABLE": "1"}
    assert not any(run_ranks(_one_is_late, 2, env=env))


def _one_never_comes() -> tuple[int, str]:
    basics.init()
    if basics.rank() == 1:
        time.sleep(4.0)
    with pytest.raises(core.CoreError) as error:
        client.allreduce(np.ones(3), "grad").wait()
    return error.value.code, str(error.value)


def test_a_stall_ends_the_job_when_asked() -> None:
    env = {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1.5"}
    for code, text in run_ranks(_one_never_comes, 3, env=env):
        assert code == core.DEADLINE_EXCEEDED, text
        assert "'grad' has waited" in text and "for rank 1" in text
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1.5" in text


def _different_names() -> tuple[int, str, float]:
    basics.init()
    with pytest.raises(core.CoreError) as error:
        client.allreduce(np.ones(3), f"of rank {basics.rank()}").wait()
    after = client.allreduce(np.float32(1), "after").wait()
    return error.value.code, str(error.value), float(after)


def test_names_that_never_match_are_an_error_that_lists_them() -> None:
    for code, text, after in run_ranks(
        _different_names, 3, env={"HOROVOD_MISMATCH_TIME_SECONDS": "1"}
    ):
        assert code == FAILED_PRECONDITION
        for rank in range(3):
            assert f"rank {rank} waits in allreduce 'of rank {rank}'" in text
        assert after == 3.0


def _one_is_stopped_in_the_middle(wait_s: float) -> tuple[list[str], int, str]:
    """Rank 1 gives no memory for the result for so long, while the others exchange data already."""
    basics.init()
    client.allreduce(np.ones(3), "before").wait()

    class Slow(client.Handle):
        def _allocate(self, *arguments):
            time.sleep(wait_s)
            return super()._allocate(*arguments)

    kind = Slow if basics.rank() == 1 else client.Handle
    code, text = core.OK, ""
    with _stderr() as lines:
        handle = kind(core.KINDS.index("allreduce"), np.ones(3), "grad", reduce_op=1)
        try:
            assert handle.wait().sum() == 3 * basics.size()
        except core.CoreError as error:
            code, text = error.code, str(error)
    return lines, code, text


@pytest.mark.parametrize(("size", "transport"), [(2, "shm"), (3, "tcp")])
def test_what_the_data_plane_waits_for_is_told(size: int, transport: str) -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.6", "HOROVOD_TRANSPORT": transport}
    ends = run_ranks(_one_is_stopped_in_the_middle, size, 3.0, env=env)
    others = "rank 1" if size == 2 else "one of rank 1 (host localhost), rank 2"
    assert len(ends[0][0]) >= 2, ends
    for line in ends[0][0]:
        assert "allreduce 'grad' has stood still for" in line and f"waits for {others}" in line
    assert [code for _, code, _ in ends] == [core.OK] * size


def test_what_the_data_plane_waits_for_ends_the_job_when_asked() -> None:
    env = {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "1.5"}
    for _, code, text in run_ranks(_one_is_stopped_in_the_middle, 2, 3.0, env=env):
        assert code == core.DEADLINE_EXCEEDED, text
        assert "'grad' has stood still for" in text
        assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=1.5" in text


def _leaves_while_another_is_stopped() -> tuple[list[str], float]:
    """Rank 0 leaves while rank 1 gives no memory for a result that is scheduled on both."""
    basics.init()
    client.allreduce(np.ones(3), "before").wait()

    class Slow(client.Handle):
        def _allocate(self, *arguments):
            time.sleep(3.0)
            return super()._allocate(*arguments)

    kind = Slow if basics.rank() == 1 else client.Handle
    with _stderr() as lines:
        handle = kind(core.KINDS.index("allreduce"), np.ones(3), "grad", reduce_op=1)
        time.sleep(0.5)  # it is in the data plane
        basics.shutdown()
    return lines, float(handle.wait().sum())


def test_what_runs_is_watched_also_while_a_rank_leaves() -> None:
    env = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.6"}
    for rank, (lines, total) in enumerate(run_ranks(_leaves_while_another_is_stopped, 2, env=env)):
        assert total == 6.0
        if rank == 0:
            assert any("has stood still for" in line for line in lines), lines
