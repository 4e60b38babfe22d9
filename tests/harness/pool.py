"""`run_ranks` in processes that live on from call to call, so that TensorFlow is imported once.

For functions that leave a process as they found it: after each call Horovod is shut down and the
default graph is reset.  What kills or poisons a process uses `tests.harness.ranks` instead.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from horovod.runner.environment import rank_environment
from horovod.runner.reaper import members, send_signal
from horovod.runner.rendezvous_server import RendezvousServer
from tests.harness.ranks import RankFailed

__all__ = ["Pool", "run_ranks"]

_STACKS_S = 0.5
_POLL_S = 0.01
_TAIL_CHARS = 4000


def run_ranks(
    fn: Callable[..., Any],
    size: int,
    *args: Any,
    timeout_s: float = 60.0,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Calls `fn(*args)` as ranks 0..size-1 and returns the results in rank order.

    Args:
      fn: a module-level function that calls `init()` itself; what it returns must pickle.
      size: number of ranks, >= 1.
      *args: for every rank; must pickle.
      timeout_s: seconds for all ranks together, imports included.
      env: extra environment variables for every rank; calls with the same ones share processes.

    Raises:
      RankFailed: with what each rank that failed printed.  The next call gets new processes.
    """
    key = size, frozenset((env or {}).items())
    pool = _pools.get(key) or _pools.setdefault(key, Pool(size, env))
    try:
        return pool.call((fn.__module__, fn.__name__, args), timeout_s)
    except BaseException:
        _pools.pop(key).close()
        raise


class Pool:
    """Processes that run as ranks what they are told, call after call.

    Args:
      size: number of ranks, >= 1.
      env: extra environment variables for every rank.
      lives_on: whether Horovod, once initialised by a call, stays so for the next ones.
    """

    def __init__(
        self, size: int, env: Mapping[str, str] | None = None, lives_on: bool = False
    ) -> None:
        secret, self._job_id = os.urandom(32), os.urandom(16).hex()
        self._stack = contextlib.ExitStack()
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        server = self._stack.enter_context(RendezvousServer(secret, size))
        base = {**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}
        base.update(env or {})
        after = "lives-on" if lives_on else "cleans-up"
        self._workers: list[tuple[subprocess.Popen[bytes], Connection]] = []
        for rank in range(size):
            environment = rank_environment(
                base,
                rank=rank,
                size=size,
                hostname="localhost",
                rendezvous_address=server.address,
                secret=secret,
                job_id=self._job_id,
            )
            ours, theirs = socket.socketpair()
            with theirs, (self._folder / str(rank)).open("wb") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.harness.pool_main", str(theirs.fileno()), after],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            self._workers.append((process, Connection(ours.detach())))

    @property
    def pids(self) -> list[int]:
        """Of the ranks, in their order."""
        return [process.pid for process, _ in self._workers]

    def call(self, what: tuple[str, str, tuple[Any, ...]], timeout_s: float) -> list[Any]:
        """Runs `what`, a module, a function of it and arguments, on all ranks.

        Raises:
          RankFailed: with what each rank that failed printed.  Then the pool is to be closed.
        """
        begins = [self._output(rank).stat().st_size for rank in range(len(self._workers))]
        for _, connection in self._workers:
            with contextlib.suppress(BrokenPipeError):  # it ended; seen below
                connection.send_bytes(pickle.dumps(what))
        deadline_s = time.monotonic() + timeout_s
        outcomes: dict[int, tuple[bool, Any]] = {}
        while len(outcomes) < len(self._workers):
            open_ones = {c: r for r, (_, c) in enumerate(self._workers) if r not in outcomes}
            ready = wait(list(open_ones), max(0.0, deadline_s - time.monotonic()))
            if not ready:
                self._print_stacks(list(open_ones.values()))
                outcomes.update(
                    (rank, (False, f"still running after {timeout_s:g} s"))
                    for rank in open_ones.values()
                )
            for connection in ready:
                assert isinstance(connection, Connection)
                try:
                    outcome = pickle.loads(connection.recv_bytes())
                except (EOFError, ConnectionResetError):  # reset: it ended with a call unread
                    outcome = (False, "the process ended")
                outcomes[open_ones[connection]] = outcome
        reports = [
            f"--- rank {rank}: {outcomes[rank][1]}\n{self._printed(rank, begins[rank])}"
            for rank in sorted(outcomes)
            if not outcomes[rank][0]
        ]
        if reports:
            raise RankFailed(
                f"{len(reports)} of {len(self._workers)} ranks failed\n" + "\n".join(reports)
            )
        return [outcomes[rank][1] for rank in sorted(outcomes)]

    def _output(self, rank: int) -> Path:
        return self._folder / str(rank)

    def _printed(self, rank: int, begin: int) -> str:
        return self._output(rank).read_bytes()[begin:].decode(errors="replace")[-_TAIL_CHARS:]

    def _print_stacks(self, ranks: list[int]) -> None:
        for rank in ranks:
            self._workers[rank][0].send_signal(signal.SIGUSR1)
        time.sleep(_STACKS_S)

    def close(self) -> None:
        """Ends the processes, and what they started."""
        for process, connection in self._workers:
            connection.close()
            process.kill()
            process.wait()
        # What the ranks started, in whatever session, carries the job's number.
        while left := members(set(), self._job_id.encode()):
            send_signal(left, signal.SIGKILL)
            time.sleep(_POLL_S)
        self._stack.close()


_pools: dict[tuple[int, frozenset[tuple[str, str]]], Pool] = {}


@atexit.register
def _close_all() -> None:
    while _pools:
        _pools.popitem()[1].close()
