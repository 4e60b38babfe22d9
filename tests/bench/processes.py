"""Looks at processes through /proc, and ends those of a job; run as a script it is a job's guard.

A process belongs to a job when its environment holds the job's mark, which all that a launcher
starts inherit.  The guard outlives a driver that was killed, whose ranks may be stopped and would
never end by themselves: it reads a pipe from the driver, and kills the job at its end of file.  It
is started by path with -I -S, so this file imports only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["SMAPS", "cpu_and_switches", "end_marked", "memory_bytes", "stop", "wake"]

SMAPS = "smaps_rollup"  # the file of /proc/<pid> that says how much memory is whose

_POLL_S = 0.01
_STOP_S = 5.0
_IN_ORDER_S = 2.0  # for a launcher to end its ranks, and to clear away its files
_END_S = 20.0


def memory_bytes(pid: int | str) -> int:
    """Returns the private memory of a process: what is of no file, shared memory by its share.

    Args:
      pid: a number, or "self".

    Raises:
      OSError: there is no such process, it is another user's, or the kernel is older than 5.3.
    """
    path = Path(f"/proc/{pid}/{SMAPS}")
    text = path.read_text()
    found = [re.search(rf"^Pss_{kind}:\s+(\d+) kB$", text, re.M) for kind in ("Anon", "Shmem")]
    sizes_kib = [int(match[1]) for match in found if match]
    if len(sizes_kib) != 2:
        raise OSError(
            f"{path} has no lines 'Pss_Anon:' and 'Pss_Shmem:'; the process has just ended, or the "
            "kernel is older than 5.3"
        )
    return sum(sizes_kib) << 10


def cpu_and_switches(pid: int) -> tuple[float, int]:
    """Returns what the living threads of a process have used so far.

    Returns:
      CPU seconds, and context switches of both kinds.

    Raises:
      OSError: there is no such process.
    """
    cpu_ns = switches = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            cpu_ns += int((thread / "schedstat").read_text().split()[0])
            status = (thread / "status").read_text()
            switches += sum(map(int, re.findall(r"ctxt_switches:\s+(\d+)", status)))
    return cpu_ns / 1e9, switches


def stop(pids: Iterable[int]) -> list[int]:
    """Stops processes by SIGSTOP.

    Returns:
      Those that have ended, or not stopped within some seconds; [] if all is well.
    """
    moving, gone = set(pids), set()
    _send(moving, signal.SIGSTOP)
    deadline_s = time.monotonic() + _STOP_S
    while moving and time.monotonic() < deadline_s:
        states = {pid: _states(pid) for pid in moving}
        gone |= {pid for pid in moving if states[pid] <= {"Z", "X"}}
        moving = {pid for pid in moving - gone if not states[pid] <= {"T", "t"}}
        if moving:
            time.sleep(_POLL_S)
    return sorted(moving | gone)


def wake(pids: Iterable[int]) -> None:
    """Lets stopped processes go on."""
    _send(pids, signal.SIGCONT)


def end_marked(mark: str) -> list[int]:
    """Ends all processes whose environment holds `mark`, until none is left.

    Those that no other of them has started, a launcher or the ranks themselves, are asked first:
    a launcher that is killed leaves files in /tmp and /dev/shm.

    Returns:
      Those that live nevertheless after some seconds; [] if all is well.
    """
    if not (left := list(_marked(mark))):
        return []
    _send(left, signal.SIGCONT)  # a stopped one would not hear of it
    _send([pid for pid in left if _parent(pid) not in left], signal.SIGTERM)
    force_s = time.monotonic() + _IN_ORDER_S
    deadline_s = force_s + _END_S
    while left := list(_marked(mark)):
        if time.monotonic() > deadline_s:
            return left
        if time.monotonic() > force_s:
            _send(left, signal.SIGKILL)
        time.sleep(_POLL_S)
    return []


def _parent(pid: int) -> int:
    """The process that started it, or takes its place; -1 if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[1])


def _marked(mark: str) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            # It may have ended meanwhile, or be another user's; a zombie's environment is empty.
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    yield int(name)


def _states(pid: int) -> set[str]:
    """The letters of its threads' states; none if it does not exist."""
    try:
        return {
            (thread / "stat").read_text().rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{pid}/task").iterdir()
        }
    except OSError:
        return set()


def _send(pids: Iterable[int], signum: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def _guard(mark: str) -> None:
    # What ends the driver from its terminal must not end the guard.
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    sys.stdin.buffer.read()
    end_marked(mark)


if __name__ == "__main__":
    _guard(sys.argv[1])
