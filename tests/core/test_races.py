"""Threads that enqueue, ask and cancel while another one starts and ends the runtime."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.exceptions import HorovodInternalError
from tests.core import client
from tests.harness.ranks import run_ranks

GENERATIONS = 25
# What a collective may end with that meets the end of a generation, on this or another rank.
ENDS = {core.OK, 1, core.PEER_LOST, core.SHUTDOWN, core.NOT_INITIALIZED}


def _enqueue_until(stop: threading.Event, number: int, seen: Counter[int]) -> None:
    step = 0
    while not stop.is_set():
        step += 1
        try:
            handle = client.allreduce(np.ones(1 + 5_000 * number, np.float32), f"t{number}")
            if step % 7 == 0:
                core.load().hvd_cancel(handle.id)
            handle.wait()
            seen[core.OK] += 1
        except core.CoreError as error:
            # A step that one rank cancelled fails on the others.
            seen[core.OK if error.code == 3 else error.code] += 1
            time.sleep(0.001)
        basics.is_initialized()
        core.load().hvd_rank()
        core.failure()
        core.counters()


def _generations_among_threads() -> tuple[int, set[int]]:
    stop, seen = threading.Event(), Counter[int]()
    threads = [
        threading.Thread(target=_enqueue_until, args=(stop, number, seen)) for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for generation in range(GENERATIONS):
        basics.init()
        assert basics.is_initialized()
        time.sleep(0.01 * (generation % 4))
        basics.shutdown()
        assert not basics.is_initialized()
    stop.set()
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    return seen[core.OK], set(seen)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 3])
def test_threads_may_do_anything_while_generations_come_and_go(size: int) -> None:
    for succeeded, seen in run_ranks(_generations_among_threads, size, timeout_s=120):
        assert succeeded > 0
        assert seen <= ENDS, seen


def _ended_during_init() -> tuple[str, float] | None:
    """Rank 0 waits for rank 1, which does not come; another thread ends that."""
    if os.environ["HOROVOD_RANK"] == "1":
        time.sleep(3)
        return None
    threading.Timer(0.5, lambda: core.shutdown(0)).start()
    start_s = time.monotonic()
    with pytest.raises(HorovodInternalError) as error:
        basics.init()
    assert not basics.is_initialized()
    return str(error.value), time.monotonic() - start_s


def test_a_shutdown_during_init_leaves_no_runtime() -> None:
    result = run_ranks(_ended_during_init, 2, env={"HOROVOD_START_TIMEOUT_SECONDS": "2"})[0]
    assert result is not None
    text, seconds = result
    assert "init" in text and seconds < 5
