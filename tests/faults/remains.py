"""What a process holds that it should not: descriptors, and mappings of shared memory."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["descriptors", "remains"]


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
