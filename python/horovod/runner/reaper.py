"""Finds the processes of a job, and ends them; run as a script it is the job's watchdog.

A process belongs to a job when its session is that of a rank (each rank leads its own),
or when its environment holds the job's id, which descendants inherit, so that one which
made a session of its own is found too.

The watchdog lives in a session of its own and reads a pipe from the launcher: the job's
id, then one line per rank with its session, and at an orderly end "done".  End of file
without "done" means that the launcher was killed: then it ends the whole job.  It is
started by path with -I -S (nothing but the standard library), so it is up in
milliseconds, and this file imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection

__all__ = ["members", "send_signal"]

_TERM_WAIT_S = 3.0  # after SIGTERM, before SIGKILL
_KILL_WAIT_S = 4.0
_LOOK_EVERY_S = 0.05
_QUIET_S = 0.5  # a rank forked just before the launcher died may not be visible yet


def members(sessions: Collection[int], job_id: bytes) -> list[int]:
    """Lists the living processes of a job, zombies and the caller excluded.

    Args:
      sessions: session ids of the ranks; an id must not have been reaped, or it may be another's.
      job_id: random bytes that the environment of every rank holds.

    Returns:
      Process ids, in no order.
    """
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        # A process may end while we look, and the environment of another user's is closed to us.
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, _, session = file.read().rpartition(b")")[2].split()[:4]
            if state in (b"Z", b"X"):
                continue
            if int(session) in sessions or job_id in _environment(name):
                found.append(int(name))
    return found


def send_signal(pids: Collection[int], signum: int) -> None:
    """Sends `signum` to each process; one that has ended meanwhile is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def _environment(pid: str) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def _end_all(sessions: Collection[int], job_id: bytes) -> None:
    """SIGTERM, then SIGKILL, until nothing has been left for _QUIET_S."""
    start_s = time.monotonic()
    quiet_since_s = start_s
    termed: set[int] = set()
    while time.monotonic() < start_s + _TERM_WAIT_S + _KILL_WAIT_S:
        now_s = time.monotonic()
        living = members(sessions, job_id)
        if living:
            quiet_since_s = now_s
        elif now_s - quiet_since_s >= _QUIET_S:
            return
        if now_s - start_s < _TERM_WAIT_S:
            send_signal(set(living) - termed, signal.SIGTERM)
            termed.update(living)
        else:
            send_signal(living, signal.SIGKILL)
        time.sleep(_LOOK_EVERY_S)


def _watch() -> None:
    # What ends the launcher's group or terminal must not end its watchdog.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    lines = sys.stdin.buffer
    job_id = lines.readline().strip()
    sessions = set()
    for line in lines:
        if line == b"done\n":
            return
        sessions.add(int(line))
    if job_id:
        _end_all(sessions, job_id)


if __name__ == "__main__":
    _watch()
