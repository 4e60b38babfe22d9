"""A rank of a job: joins the others, then does what the driver says, until it says "end".

Argument: the backend's module.  The driver's socket is in the environment.  Commands are JSON
objects {"do": name, ...}; each is answered by {"ok": value}, {"wrong": text} for a result that is
not right, or {"error": text}:

  can      case               whether the system has what the case needs
  prepare  case               makes it the case at hand; the former one is closed
  check    part               one iteration, results compared
  run      part, count        iterations, timed one by one: median and mean, in seconds
  end                         leaves the others; the process ends in order
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import signal
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tests.bench import processes
from tests.bench.cases import case_named
from tests.bench.channel import SOCKET, SPAWNED_S, Channel, connect
from tests.bench.errors import WrongResult
from tests.bench.rank_backend import Backend, Work

__all__: list[str] = []

_TEXT_CHARS = 6000


class _Rank:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._work: Work | None = None

    def start(self) -> dict[str, Any]:
        """Joins the other ranks and does the first op."""
        before_bytes = _memory_bytes()
        start_s = time.monotonic()
        rank, size = self._backend.init()
        init_s = time.monotonic() - start_s
        self._backend.first_op()
        first_op_s = time.monotonic() - float(os.environ[SPAWNED_S])
        return {
            "rank": rank,
            "size": size,
            "init_s": init_s,
            "first_op_s": first_op_s,
            "memory_bytes": [before_bytes, _memory_bytes()],
        }

    def can(self, case: str) -> bool:
        return self._backend.can(case_named(case))

    def prepare(self, case: str) -> None:
        self._close_work()
        self._work = self._backend.prepare(case_named(case))

    def check(self, part: str) -> None:
        self._at_hand().check(part)

    def run(self, part: str, count: int) -> dict[str, float]:
        iteration = self._at_hand().runner(part)
        seconds = [_seconds(iteration) for _ in range(count)]
        return {"median_s": statistics.median(seconds), "mean_s": statistics.fmean(seconds)}

    def end(self) -> None:
        self._close_work()
        self._backend.end()

    def _at_hand(self) -> Work:
        if self._work is None:
            raise RuntimeError("no case was made ready; send 'prepare' first")
        return self._work

    def _close_work(self) -> None:
        if self._work is not None:
            self._work.close()
            self._work = None
            gc.collect()
            # What the heap of one system keeps, the other systems of the run lack.
            ctypes.CDLL(None).malloc_trim(0)


def _memory_bytes() -> int | None:
    """None where the kernel does not say, which is no reason not to measure anything else."""
    try:
        return processes.memory_bytes("self")
    except OSError:
        return None


def _seconds(iteration: Callable[[], object]) -> float:
    start_ns = time.perf_counter_ns()
    iteration()
    return (time.perf_counter_ns() - start_ns) / 1e9


def _answer(action: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": action(**arguments)}
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> dict[str, str]:
    """To be called while it is handled."""
    kind = "wrong" if isinstance(error, WrongResult) else "error"
    return {kind: traceback.format_exc()[-_TEXT_CHARS:]}


def _serve(channel: Channel, rank: _Rank) -> None:
    actions: dict[str, Callable[..., Any]] = {
        "can": rank.can,
        "prepare": rank.prepare,
        "check": rank.check,
        "run": rank.run,
        "end": rank.end,
    }
    while command := channel.receive(waits=True):
        name = command.pop("do")
        channel.send(_answer(actions[name], command))
        if name == "end":
            return


def _main(module: str) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    gc.disable()  # a collection in mid-measurement is no time of the system's
    channel = connect(os.environ[SOCKET])
    channel.send({"pid": os.getpid()})  # from now on the driver sees it if this process ends
    try:
        rank = _Rank(importlib.import_module(module).backend())
        started = {"ok": rank.start()}
    except Exception as error:
        channel.send(_failure(error))
        raise
    channel.send(started)
    _serve(channel, rank)


if __name__ == "__main__":
    _main(sys.argv[1])
