"""What a framework's module gives to the rank program: a function `backend()` that returns this.

Threads: one, the rank's main thread.  What is raised is told to the driver with its traceback.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tests.bench.cases import Case

__all__ = ["Backend", "PARTS", "Work"]

# What a part of a case runs: the collective over all ranks; only what makes its inputs.
PARTS = ("gross", "baseline")


class Work(Protocol):
    """A case made ready: both parts of it.  Only one is alive at a time."""

    def runner(self, part: str) -> Callable[[], object]:
        """Returns what runs one iteration; it returns once the results are there."""

    def check(self, part: str) -> None:
        """Runs one iteration with its results looked at, on all ranks at once.

        Raises:
          WrongResult: what came is not what NumPy says.
        """

    def close(self) -> None:
        """Gives its memory back."""


class Backend(Protocol):
    """A framework and its collectives."""

    def init(self) -> tuple[int, int]:
        """Joins the other ranks; returns rank and size."""

    def first_op(self) -> None:
        """An allreduce of 4 bytes."""

    def can(self, case: Case) -> bool:
        """Whether the system has what the case needs."""

    def prepare(self, case: Case) -> Work:
        """Makes a case ready, on all ranks at once."""

    def end(self) -> None:
        """Leaves the other ranks."""
