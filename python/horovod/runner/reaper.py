"""Finds the processes of a job, and ends them; run as a script it is the job's watchdog.

A process belongs to a job when its session is that of a rank (each rank leads its own);
when its environment holds the job's id, which descendants inherit, so that one which made
a session of its own is found too; when its parent belongs to it, so that one which also
cleared its environment is found; or when it has belonged before, since a parent's end must
not hide it.  Only one that left session, environment and parent before anybody looked
escapes.

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
from collections.abc import Collection, MutableMapping

__all__ = ["members", "send_signal"]

_TERM_WAIT_S = 3.0  # after SIGTERM, before SIGKILL
_KILL_WAIT_S = 4.0
_LOOK_EVERY_S = 0.05
_QUIET_S = 0.5  # a rank forked just before the launcher died may not be visible yet


class _Process:
    """What /proc/<pid>/stat says of a living process.  `start` and the id name it for ever."""

    def __init__(self, parent: int, session: int, start: int) -> None:
        self.parent = parent
        self.session = session
        self.start = start


def members(
    sessions: Collection[int], job_id: bytes, seen: MutableMapping[int, int] | None = None
) -> list[int]:
    """Lists the living processes of a job, zombies and the caller excluded.

    Args:
      sessions: session ids of the ranks; an id must not have been reaped, or it may be another's.
      job_id: random bytes that the environment of every rank holds.
      seen: start times by process id of those that earlier calls found; brought up to date here.

    Returns:
      Process ids, in no order.
    """
    living = {pid: process for pid in _ids() if (process := _look(pid)) is not None}
    children: dict[int, list[int]] = {}
    for pid, process in living.items():
        children.setdefault(process.parent, []).append(pid)
    seen = {} if seen is None else seen
    found: set[int] = set()
    left = [
        pid
        for pid, process in living.items()
        if process.session in sessions
        or seen.get(pid) == process.start
        or job_id in _environment(pid)
    ]
    while left:
        pid = left.pop()
        if pid not in found and pid != os.getpid():
            found.add(pid)
            left += children.get(pid, [])
    seen.clear()
    seen.update((pid, living[pid].start) for pid in found)
    return list(found)


def send_signal(pids: Collection[int], signum: int) -> None:
    """Sends `signum` to each process; one that has ended meanwhile is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signum)


def _ids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _look(pid: int) -> _Process | None:
    """Returns None for one that has ended, be it meanwhile or as a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    state, threads = fields[0], int(fields[17])
    # Of a process whose first thread has ended the others may run on; it looks like a zombie.
    if state == b"X" or (state == b"Z" and threads < 2):
        return None
    return _Process(parent=int(fields[1]), session=int(fields[3]), start=int(fields[19]))


def _environment(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:  # it has ended meanwhile, or is another user's
        return b""


def _end_all(sessions: Collection[int], job_id: bytes) -> None:
    """SIGTERM, then SIGKILL, until nothing has been left for _QUIET_S."""
    start_s = time.monotonic()
    quiet_since_s = start_s
    termed: set[int] = set()
    seen: dict[int, int] = {}
    while time.monotonic() < start_s + _TERM_WAIT_S + _KILL_WAIT_S:
        now_s = time.monotonic()
        living = members(sessions, job_id, seen)
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
