"""Runs one function in N fresh processes, as N ranks, and collects what it returns."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from horovod.runner.environment import rank_environment
from horovod.runner.reaper import members, send_signal
from horovod.runner.rendezvous_server import RendezvousServer
from horovod.runner.report import describe_status

__all__ = ["RankFailed", "run_ranks"]

_POLL_S = 0.01
_OTHERS_MAY_REPORT_S = 5.0  # after one rank failed, so that the report has every side
_STACKS_S = 0.5
_END_S = 10.0
_TAIL_CHARS = 4000


class RankFailed(AssertionError):
    """At least one rank raised, died or ran past its time; the text says which and why."""


def run_ranks(
    fn: Callable[..., Any],
    size: int,
    *args: Any,
    timeout_s: float = 60.0,
    env: Mapping[str, str] | None = None,
    may_die: Collection[int] = (),
) -> list[Any]:
    """Calls `fn(*args)` as ranks 0..size-1, each in a new interpreter.

    New interpreters, not fork: TensorFlow's threads do not survive a fork.  Nothing that the ranks
    started is left when it returns.

    Args:
      fn: a module-level function; what it returns must pickle.
      size: number of ranks, >= 1.
      *args: for every rank; must pickle.
      timeout_s: seconds for all ranks together.  A rank still running is then made to print every
        thread's stack, and is killed.
      env: extra environment variables for every rank.
      may_die: ranks whose death or error is part of the test; then their result is None.

    Returns:
      The results, in rank order.

    Raises:
      RankFailed: with the output of each rank that failed.
    """
    secret, job_id = os.urandom(32), os.urandom(16).hex()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(RendezvousServer(secret, size))
        (folder / "call").write_bytes(pickle.dumps((fn.__module__, fn.__name__, args)))
        base = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            **(env or {}),
        }
        ranks: list[_Rank] = []
        stack.callback(_end_all, ranks, job_id)
        for rank in range(size):
            environment = rank_environment(
                base,
                rank=rank,
                size=size,
                hostname="localhost",
                rendezvous_address=server.address,
                secret=secret,
                job_id=job_id,
            )
            ranks.append(_Rank(rank, folder, environment, timeout_s))
        _wait(ranks, timeout_s, may_die)
        _end_all(ranks, job_id)
        reports = [rank.report() for rank in ranks if rank.rank not in may_die and not rank.ok]
        if reports:
            raise RankFailed(f"{len(reports)} of {size} ranks failed\n" + "\n".join(reports))
        return [rank.value for rank in ranks]


class _Rank:
    """One process and the files it writes."""

    def __init__(
        self, rank: int, folder: Path, environment: Mapping[str, str], timeout_s: float
    ) -> None:
        self.rank = rank
        self.stopped = False  # it was still running when the harness ended it
        self._outcome_file = folder / f"outcome{rank}"
        self._output_file = folder / f"output{rank}"
        self._call = [
            str(folder / "call"),
            str(self._outcome_file),
            str(timeout_s + _OTHERS_MAY_REPORT_S + _END_S),
        ]
        with self._output_file.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.rank_main", *self._call],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def ok(self) -> bool:
        """Whether the function returned and the process then ended in order."""
        return self.process.returncode == 0 and self._outcome()[0]

    @property
    def value(self) -> Any:
        """What the function returned; None if it did not."""
        returned, value = self._outcome()
        return value if returned else None

    def report(self) -> str:
        """Says how it ended, with the end of what it printed."""
        returned, value = self._outcome()
        how = "ended by the harness" if self.stopped else describe_status(self.process.returncode)
        what = "the function returned; then: " if returned else ""
        trace = f"\n{value}" if not returned and value else ""
        output = self._output_file.read_text(errors="replace")[-_TAIL_CHARS:]
        return f"--- rank {self.rank}: {what}{how}{trace}\n{output}"

    def _outcome(self) -> tuple[bool, Any]:
        try:
            returned, value = pickle.loads(self._outcome_file.read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):  # it died before or in the writing
            return False, None
        return returned, value


def _running(ranks: list[_Rank]) -> Iterator[_Rank]:
    return (rank for rank in ranks if rank.process.poll() is None)


def _wait(ranks: list[_Rank], timeout_s: float, may_die: Collection[int]) -> None:
    """Returns when all have ended, the time is over, or some time after one has failed."""
    deadline_s = time.monotonic() + timeout_s
    failed = False
    while any(_running(ranks)) and time.monotonic() < deadline_s:
        if not failed and any(
            rank.process.poll() not in (None, 0) and rank.rank not in may_die for rank in ranks
        ):
            failed = True
            deadline_s = min(deadline_s, time.monotonic() + _OTHERS_MAY_REPORT_S)
        time.sleep(_POLL_S)


def _end_all(ranks: list[_Rank], job_id: str) -> None:
    """Ends ranks that still run, their stacks printed first, and whatever the ranks left behind."""
    running = list(_running(ranks))
    for rank in running:
        rank.stopped = True
        send_signal([rank.process.pid], signal.SIGUSR1)
    if running:
        time.sleep(_STACKS_S)
    sessions = {rank.process.pid for rank in running}  # of the others only the job's id is ours
    deadline_s = time.monotonic() + _END_S
    while time.monotonic() < deadline_s:
        left = members(sessions, job_id.encode())
        if not left:
            break
        send_signal(left, signal.SIGKILL)
        time.sleep(_POLL_S)
    for rank in running:
        rank.process.wait()
