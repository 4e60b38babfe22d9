"""Counts the instructions from `hvd_enqueue` until `done`, which no other process can disturb.

Ranks of `tests.bench.core` run under valgrind's callgrind, which counts the instructions of each
thread outside the kernel.  A job is run twice, with N and with 3 N operations, and the difference
divided by 2 N, so that start and end cancel.  The operation is an allreduce of 4 bytes whose name
is in the cache.

The counts repeat within 2 %, on a busy machine too, but for one: over shared memory the data thread
polls for a while before it sleeps, and how often depends on the other rank's progress (3,600 to
11,400 instructions were seen, polls included).  So there compare the caller and the control thread.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.core import CoreRanks, case_named
from tests.bench.errors import BenchError, Unavailable

__all__ = ["JOBS", "count", "parse"]

_CASE = case_named("allreduce 4 B")
_ITERATIONS = 1000
_PATIENCE_S = 180.0  # valgrind is 50 times slower than the machine, and the machine may be busy
_Job = tuple[str, int, str]  # name of the row, ranks, HOROVOD_TRANSPORT
JOBS: tuple[_Job, ...] = (
    ("1 rank", 1, "auto"),
    ("2 ranks shm", 2, "shm"),
    ("2 ranks tcp", 2, "tcp"),
)
# A thread is known by a function that only it runs.
_THREADS = (
    ("caller", "hvd_enqueue"),
    ("control thread", "hvd::ControlLoop::Run"),
    ("data thread", "hvd::Executor::Run"),
)
_TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def count(iterations: int = _ITERATIONS, jobs: Sequence[_Job] = JOBS) -> dict[str, float]:
    """Counts for one rank alone, and for two over shared memory and over TCP.

    Args:
      iterations: N; more of them make the count of two ranks steadier.
      jobs: what to run; each takes 2 to 6 seconds.

    Returns:
      Instructions per operation of one rank: "1 rank", "2 ranks shm, rank 0", ...; and of these
      the part of each thread: "1 rank, caller", "1 rank, control thread", "1 rank, data thread".

    Raises:
      Unavailable: no valgrind, or the program is not built.
      BenchError: a rank failed, or callgrind wrote something unknown.
    """
    if shutil.which("valgrind") is None:
        raise Unavailable("no valgrind here; install Debian's package valgrind")
    results: dict[str, float] = {}
    for title, size, transport in jobs:
        few = _of_job(size, transport, iterations)
        many = _of_job(size, transport, 3 * iterations)
        for rank in range(size):
            row = title if size == 1 else f"{title}, rank {rank}"
            of_thread = {
                name: (many[rank][name] - few[rank][name]) / (2 * iterations)
                for name, _ in _THREADS
            }
            results[row] = sum(of_thread.values())
            results.update({f"{row}, {name}": value for name, value in of_thread.items()})
    return results


def _of_job(size: int, transport: str, iterations: int) -> list[dict[str, int]]:
    """Returns the instructions of each thread of each rank of a whole job."""
    with tempfile.TemporaryDirectory() as folder:

        def under_callgrind(rank: int) -> list[str]:
            out = f"--callgrind-out-file={folder}/rank{rank}"
            return ["valgrind", "-q", "--tool=callgrind", "--separate-threads=yes", out]

        with CoreRanks(size, transport, under_callgrind, _PATIENCE_S) as ranks:
            ranks.repeat(_CASE, iterations)
        return [
            parse([path.read_text() for path in Path(folder).glob(f"rank{rank}-*")])
            for rank in range(size)
        ]


def parse(outputs: list[str]) -> dict[str, int]:
    """Reads callgrind's files of one process, one for each thread.

    Returns:
      Instructions by thread: "caller", "control thread", "data thread"; other threads, which work
      while the job starts, are left out.

    Raises:
      BenchError: not exactly one file is of such a thread, or one has no total.
    """
    counts: dict[str, int] = {}
    for name, function in _THREADS:
        of_thread = [text for text in outputs if re.search(rf" {re.escape(function)}\b", text)]
        if len(of_thread) != 1:
            raise BenchError(
                f"callgrind saw {function} in {len(of_thread)} of {len(outputs)} threads, not in "
                "one; name a function that only this thread runs in tests/bench/instructions.py"
            )
        total = _TOTAL.search(of_thread[0])
        if total is None:
            raise BenchError(f"callgrind wrote no total for the {name}")
        counts[name] = int(total.group(1))
    return counts
