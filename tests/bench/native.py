"""The C++ programs of the benchmark: where they are."""

from __future__ import annotations

from pathlib import Path

from tests.bench.errors import Unavailable
from tests.bench.systems import ROOT

__all__ = ["program"]

_FOLDER = ROOT / "build" / "bazel-bin" / "tests" / "bench" / "cc"


def program(name: str) -> Path:
    """Returns where a program of tests/bench/cc lies.

    Raises:
      Unavailable: it has not been built.
    """
    path = _FOLDER / name
    if not path.exists():
        raise Unavailable(
            f"{path.relative_to(ROOT)} is missing; type: bazel build //tests/bench/cc:all"
        )
    return path
