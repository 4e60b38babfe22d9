"""What a process holds that it should not: descriptors, and mappings of shared memory."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["descriptors", "remains", "remains_of_child"]

_CHILD_MAY_START_S = 5.0
_POLL_S = 0.01


def descriptors(pid: str) -> list[str]:
    """Lists what each open descriptor of a process is, e.g. "socket:[123]"; sorted.

    Args:
      pid: "self", or a number.
    """
    found = []
    for number in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # the one by which we list
            found.append(os.readlink(f"/proc/{pid}/fd/{number}"))
    return sorted(found)


def remains(pid: str, before: Sequence[str]) -> list[str]:
    """Lists the descriptors of a process beyond `before`, and its mappings of memfds."""
    left = descriptors(pid)
    for what in before:
        if what in left:
            left.remove(what)
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return left + [line for line in maps if "memfd:" in line]


def remains_of_child(pid: int, before: Sequence[str]) -> list[str]:
    """`remains`, of a process that was forked just now and may not have run yet.

    It inherits everything, and closes it as soon as it runs.
    """
    deadline_s = time.monotonic() + _CHILD_MAY_START_S
    while (left := remains(str(pid), before)) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
    return left
