"""How ranks ended in words, the ranks' environment, the build report, and what imports load."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from horovod.runner.check_build import describe_build
from horovod.runner.environment import rank_environment
from horovod.runner.report import (
    describe_status,
    exit_code,
    list_statuses,
    other_python,
    signal_name,
)


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


def test_another_python_than_the_launchers_is_named(tmp_path, monkeypatch):
    assert other_python(sys.executable) is None
    assert other_python("sh") is None
    assert other_python("no-such-program") is None
    python = tmp_path / "python3"
    python.write_text("")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    hint = other_python("python3")
    assert f"python3 is {python}" in hint and sys.executable in hint and "activate" in hint


@pytest.mark.parametrize(
    ("name", "words"), [("run", "horovodrun -np"), ("init", "horovod.tensorflow"), ("x", "'x'")]
)
def test_what_programs_look_for_in_the_package_itself_says_where_it_is(name, words):
    import horovod

    with pytest.raises(AttributeError, match=words):
        getattr(horovod, name)


@pytest.mark.parametrize(
    ("cores", "size", "threads"),
    [(8, 2, ("4", "4", "4")), (7, 3, ("2", "2", "2")), (2, 4, ("1", "2", "1")), (8, 1, None)],
)
def test_each_rank_gets_its_share_of_the_cores_unless_it_is_said(monkeypatch, cores, size, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    place = {"rank": 0, "size": size, "hostname": "h", "rendezvous_address": "h:1"}
    got = rank_environment({}, **place, secret=b"", job_id="me")
    assert [got.get(name) for name in names] == list(threads or [None] * 3)
    said = rank_environment({"OMP_NUM_THREADS": "7"}, **place, secret=b"", job_id="me")
    assert said["OMP_NUM_THREADS"] == "7"


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
