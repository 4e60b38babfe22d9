"""One rank as a process: starting it, and reading its status without reaping it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import IO

__all__ = ["RankProcess"]


class RankProcess:
    """A running rank, leader of a session of its own.

    It stays a zombie until `reap`: so its id, which names its session, is nobody else's
    while the launcher still signals that session.

    Args:
      rank: the rank's number.
      command: program and arguments; found by the launcher's PATH.
      environment: the whole environment of the process.

    Raises:
      OSError: the program cannot be started.
    """

    def __init__(self, rank: int, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.rank = rank
        self.status: int | None = None  # the exit code, or minus the signal; None: running
        # One standard input cannot be shared among ranks, so each has an empty one.
        self._popen = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            start_new_session=True,
            bufsize=0,
        )

    @property
    def pid(self) -> int:
        """The process, and its session and group."""
        return self._popen.pid

    @property
    def stdout(self) -> IO[bytes]:
        """Where its standard output is read."""
        assert self._popen.stdout is not None
        return self._popen.stdout

    @property
    def stderr(self) -> IO[bytes]:
        """Where its standard error is read."""
        assert self._popen.stderr is not None
        return self._popen.stderr

    def look(self) -> bool:
        """Sets `status` if the process has ended; returns whether it ended since the last look."""
        if self.status is not None:
            return False
        info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return False
        self.status = info.si_status if info.si_code == os.CLD_EXITED else -info.si_status
        return True

    def reap(self) -> None:
        """Lets the process go, and its id.  REQUIRES: it has ended, or is given up."""
        if self.status is not None:
            self._popen.wait()
