"""The launcher's hold on its watchdog: the process that ends a job whose launcher was killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from horovod.runner import reaper

__all__ = ["Watchdog"]


class Watchdog:
    """Starts the watchdog; from here on the launcher may die at any moment.

    Args:
      job_id: hex digits that the environment of every rank holds.

    Raises:
      OSError: the process cannot be started.
    """

    def __init__(self, job_id: str) -> None:
        # Without the ids of jobs around this one: it is none of their ranks.
        environment = {k: v for k, v in os.environ.items() if k != "HOROVOD_JOB_ID"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
        self._tell(job_id)

    def add_session(self, session: int) -> None:
        """Tells it of a rank, by its session."""
        self._tell(str(session))

    def close(self) -> None:
        """Ends it: the job is over.  Idempotent."""
        self._tell("done")
        stdin = self._process.stdin
        if stdin is not None:
            with contextlib.suppress(OSError):
                stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        """Writes one line; if somebody killed the watchdog the job goes on without."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                os.write(stdin.fileno(), line.encode() + b"\n")
