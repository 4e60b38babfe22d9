"""Which processes belong to a job."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import pytest

from horovod.runner.reaper import members

PYTHON = [sys.executable, "-c"]
NO_JOB = uuid.uuid4().hex.encode()


@contextlib.contextmanager
def started(code: str, **options: object) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a program in a session of its own; returns once it has printed a line."""
    process = subprocess.Popen(
        [*PYTHON, code], stdout=subprocess.PIPE, start_new_session=True, **options
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


SLEEPS = "import time; print(1, flush=True); time.sleep(60)"
# Its child has neither its session nor its environment.
HAS_A_STRANGE_CHILD = """
import subprocess, sys, time
code = "import time; time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], env={}, start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""
# The first thread ends, another one stays: the kernel shows such a process as a zombie.
HEADLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(1, flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_by_session_and_by_environment() -> None:
    job_id = uuid.uuid4().hex
    with (
        started(SLEEPS, env={"HOROVOD_JOB_ID": f"outer:{job_id}"}) as marked,
        started(SLEEPS, env={}) as plain,
    ):
        assert members([], job_id.encode()) == [marked.pid]
        assert sorted(members([plain.pid], job_id.encode())) == sorted([marked.pid, plain.pid])
        plain.kill()
        deadline_s = time.monotonic() + 10
        while members([plain.pid], NO_JOB) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert members([plain.pid], NO_JOB) == []  # a zombie is nobody


def test_a_child_is_found_by_its_parent_and_remembered() -> None:
    process = subprocess.Popen(
        [*PYTHON, HAS_A_STRANGE_CHILD], stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        seen: dict[int, int] = {}
        assert sorted(members([process.pid], NO_JOB, seen)) == sorted([process.pid, child])
        process.kill()
        process.wait()
        assert members([process.pid], NO_JOB) == []
        assert members([process.pid], NO_JOB, seen) == [child]
    finally:
        process.kill()
        os.kill(child, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("start", [0, 1])
def test_what_was_seen_is_known_by_its_start_too(start: int) -> None:
    with started(SLEEPS) as process:
        seen: dict[int, int] = {}
        members([process.pid], NO_JOB, seen)
        assert seen.keys() == {process.pid}
        seen[process.pid] += start  # as if the number were another one's by now
        assert members([], NO_JOB, seen) == ([] if start else [process.pid])


def test_a_process_without_its_first_thread_lives() -> None:
    with started(HEADLESS) as process:
        deadline_s = time.monotonic() + 10
        while b") Z" not in _stat(process.pid) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert b") Z" in _stat(process.pid)
        assert members([process.pid], NO_JOB) == [process.pid]


def _stat(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read()
