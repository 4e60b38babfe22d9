"""Signals as something that an event loop can wait for."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from types import FrameType
from typing import Any

__all__ = ["SignalPipe"]


class SignalPipe:
    """While entered, the given signals arrive as bytes in a pipe.

    REQUIRES: the main thread, as Python demands for handlers.  On exit the former handlers
    are back.

    Args:
      signums: the signals to catch.
    """

    def __init__(self, signums: Iterable[int]) -> None:
        self._signums = tuple(signums)
        self._former: dict[int, Any] = {}
        self._former_wakeup_fd = -1
        self._read_fd = -1
        self._write_fd = -1

    def __enter__(self) -> SignalPipe:
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        self._former_wakeup_fd = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for signum in self._signums:
            self._former[signum] = signal.signal(signum, _nothing)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for signum, handler in self._former.items():
            # None: a handler that was not set from Python, which cannot be put back.
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)
        signal.set_wakeup_fd(self._former_wakeup_fd)
        os.close(self._read_fd)
        os.close(self._write_fd)

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._read_fd

    def take(self) -> list[int]:
        """Returns the signals that have come since the last call, oldest first."""
        try:
            return list(os.read(self._read_fd, 4096))
        except BlockingIOError:
            return []


def _nothing(signum: int, frame: FrameType | None) -> None:
    """A handler must exist for the signal to reach the pipe."""
