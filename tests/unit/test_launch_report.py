"""How ranks ended in words, the ranks' environment, the build report, and what imports load."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from horovod.runner.check_build import describe_build
from horovod.runner.environment import rank_environment
from horovod.runner.report import describe_status, exit_code, list_statuses, signal_name


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (0, "exit code 0", 0),
        (3, "exit code 3", 3),
        (-signal.SIGSEGV, "killed by SIGSEGV (signal 11)", 139),
        (-40, "killed by signal 40 (signal 40)", 168),
    ],
)
def test_statuses(status, text, code):
    assert describe_status(status) == text
    assert exit_code(status) == code


def test_signal_name():
    assert signal_name(9) == "SIGKILL"


def test_neighbours_with_one_end_are_listed_together():
    statuses = {0: 1, 1: -15, 2: -15, 3: 1, 4: None, 5: 0}
    assert list_statuses(statuses, [1, 2, 3, 4]) == (
        "rank 0: exit code 1; ranks 1-2: killed by SIGTERM (signal 15), by horovodrun; "
        "rank 3: exit code 1, when told to end; rank 4: still running, when told to end; "
        "rank 5: exit code 0"
    )


def test_environment_wins_over_what_is_inherited_but_for_buffering():
    base = {"HOROVOD_RANK": "9", "HOROVOD_JOB_ID": "outer", "PYTHONUNBUFFERED": "", "A": "b"}
    got = rank_environment(
        base, rank=1, size=2, hostname="h", rendezvous_address="h:1", secret=b"\x01", job_id="me"
    )
    assert got["HOROVOD_RANK"] == "1" and got["HOROVOD_JOB_ID"] == "outer:me"
    assert got["HOROVOD_SECRET_KEY"] == "01" and got["A"] == "b" and got["PYTHONUNBUFFERED"] == ""
    assert base["HOROVOD_RANK"] == "9"


def test_check_build_marks_what_is_there(tmp_path):
    assert "[X]" not in describe_build(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libhorovod_core.so").touch()
    assert "[ ] TensorFlow" in describe_build(tmp_path)
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "_tf_ops.so").touch()
    assert "[X] TensorFlow" in describe_build(tmp_path)
    assert "[ ] NCCL" in describe_build(tmp_path)


@pytest.mark.parametrize("module", ["horovod", "horovod.runner.launch"])
def test_importing_loads_nothing_heavy(module):
    code = f"""
import sys
before = set(sys.modules)
import {module}
heavy = {{"tensorflow", "keras", "numpy", "yaml", "psutil", "ctypes", "asyncio", "multiprocessing"}}
print(sorted(heavy & (set(sys.modules) - before)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"[]"
