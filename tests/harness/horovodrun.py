"""Runs horovodrun, reads its output rank by rank, and sees what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

__all__ = [
    "ENDS_WITHIN_S",
    "HOROVODRUN",
    "PYTHON",
    "SLACK",
    "assert_gone",
    "environment",
    "lines_of",
    "living",
    "run",
    "running",
    "wait_for_lines",
]

HOROVODRUN = [sys.executable, "-m", "horovod.runner.launch"]
PYTHON = sys.executable
ENDS_WITHIN_S = 5.0
# A fault's bound fails a test at five times the bound, since the machine may be busy.
SLACK = 5


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


def run(*args, timeout_s=120, wrapper=(), **kwargs):
    """Runs it to the end, by way of the command `wrapper`; output as bytes."""
    return subprocess.run(
        [*wrapper, *HOROVODRUN, *map(str, args)], env=environment(), capture_output=True,
        timeout=timeout_s, check=False, **kwargs,
    )  # fmt: skip


@contextlib.contextmanager
def running(*args, **kwargs):
    """Starts it, and kills it, but nothing else, at the end."""
    process = subprocess.Popen(
        [*HOROVODRUN, *map(str, args)], env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, **kwargs,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def lines_of(rank, output, name="stdout"):
    mark = f"[{rank}]<{name}>:".encode()
    lines = output.split(b"\n")
    assert lines[-1] == b""
    return [line[len(mark) :] for line in lines if line.startswith(mark)]


def living(mark):
    """Process ids whose command line holds `mark`."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
            if mark.encode() in file.read():
                found.append(int(name))
    return found


def assert_gone(mark, within_s):
    deadline_s = time.monotonic() + within_s
    while living(mark) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert living(mark) == []


def wait_for_lines(process, count):
    return [process.stdout.readline() for _ in range(count)]
