"""What the parts of the benchmark raise."""

from __future__ import annotations

__all__ = ["BenchError", "Unavailable", "WrongResult"]


class BenchError(Exception):
    """A process died, failed or did not answer in time; the text ends with what it printed last."""


class WrongResult(BenchError):
    """A result is not what it must be; the text says where, with both values.

    It tells of the figures taken before, too, which no other failure does.
    """


class Unavailable(Exception):
    """This cannot be measured here; the text says why, and what to do if one can do something."""
