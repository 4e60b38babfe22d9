"""What a run was taken on and with: CPU, memory, kernel, and the versions of everybody."""

from __future__ import annotations

import os
import platform
import shutil
from pathlib import Path

from tests.bench.command import output_of
from tests.bench.errors import BenchError
from tests.bench.systems import ROOT, interpreter

__all__ = ["describe"]

_COMMAND_S = 60.0
_VERSION = """
import importlib.metadata as m
for name in {names!r}:
    try:
        print(m.version(name))
        break
    except m.PackageNotFoundError:
        pass
"""


def describe() -> dict[str, str]:
    """Returns name and value, for readers; what is not there says so."""
    cpus = len(os.sched_getaffinity(0))
    return {
        "CPU": _after("/proc/cpuinfo", "model name") or platform.machine(),
        "cores for this process": f"{cpus} of {os.cpu_count()}",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "kernel": platform.release(),
        "this tree": f"{_installed('ours', 'horovod')}, commit {_commit()}",
        "TensorFlow": _installed("ours", "tensorflow-cpu", "tensorflow"),
        "peer": f"Horovod {_installed('peer', 'horovod')}, TensorFlow "
        f"{_installed('peer', 'tensorflow-cpu', 'tensorflow')}",
        "MPI": _first_line("mpirun", "--version"),
        "torch": _installed("torch", "torch"),
    }


def _installed(venv: str, *names: str) -> str:
    """The version of the first of the distributions that is there."""
    command = [str(interpreter(venv)), "-I", "-c", _VERSION.format(names=names)]
    return _output(command) or "not installed"


def _commit() -> str:
    commit = _output(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    if not commit:
        return "unknown"
    changed = _output(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return f"{commit} with changes" if changed else commit


def _first_line(command: str, *arguments: str) -> str:
    if shutil.which(command) is None:
        return "not installed"
    return (_output([command, *arguments]).splitlines() or ["unknown"])[0]


def _after(path: str, key: str) -> str:
    """The value of the first line "key : value" of a file."""
    for line in Path(path).read_text(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return ""


def _output(command: list[str]) -> str:
    """What it prints; nothing if it cannot be run, fails or takes too long."""
    try:
        return output_of(command, _COMMAND_S).strip()
    except BenchError:
        return ""
