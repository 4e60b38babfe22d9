"""The C++ programs of the benchmark: where they are, and how one is run to its end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NativeError", "Unavailable", "WrongResult", "output_of", "program"]

_ROOT = Path(__file__).absolute().parents[2]
_FOLDER = _ROOT / "build" / "bazel-bin" / "tests" / "bench" / "cc"
_TAIL_CHARS = 2000


class Unavailable(Exception):
    """This cannot be measured here; the text says why, and what to do if one can do something."""


class NativeError(Exception):
    """A program failed, or did not answer in time; the text says which."""


class WrongResult(NativeError):
    """A collective's result was not what it must be; the text says where."""


def program(name: str) -> Path:
    """Returns where a program of tests/bench/cc lies.

    Raises:
      Unavailable: it has not been built.
    """
    path = _FOLDER / name
    if not path.exists():
        raise Unavailable(
            f"{path.relative_to(_ROOT)} is missing; type: bazel build //tests/bench/cc:all"
        )
    return path


def output_of(command: Sequence[str], timeout_s: float) -> str:
    """Runs a command to its end and returns what it printed.

    Raises:
      NativeError: it failed, with the end of what it said, or ran longer than `timeout_s`.
    """
    try:
        ended = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise NativeError(f"{' '.join(command)}: still running after {timeout_s:g} s") from error
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr).strip()[-_TAIL_CHARS:]
        raise NativeError(f"{' '.join(command)}: exit status {ended.returncode}: {said}")
    return ended.stdout
