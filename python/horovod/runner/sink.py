"""One output of the launcher, written by a thread of its own.

A reader may be slow or stopped; the launcher must still see signals and ended ranks.
So it never writes itself: it puts data here and, while the sink is full, stops reading
from the ranks, who then wait in their own writes.  Nothing is lost.

Threads: `put` and the properties belong to the launcher's thread; the writer calls
`wake` after each write and when the output broke.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable

__all__ = ["Sink"]

_FULL_BYTES = 1 << 20


class Sink:
    """Writes to a file descriptor, in the order of the `put` calls, each piece whole.

    Args:
      fd: the descriptor; it stays the caller's.
      wake: called from the writer's thread whenever a property may have changed.
    """

    def __init__(self, fd: int, wake: Callable[[], None]) -> None:
        self.fd = fd
        self._wake = wake
        self._condition = threading.Condition()
        self._queue: list[bytes] = []
        self._unwritten_bytes = 0  # in the queue or in the writer's hands
        self._broken: OSError | None = None
        self._closed = False
        # A daemon: a reader that never reads must not keep the launcher from ending.
        threading.Thread(target=self._write_all, name=f"hvd-write-{fd}", daemon=True).start()

    def put(self, data: bytes) -> None:
        """Queues `data`; drops it if the output is broken.  Never waits."""
        with self._condition:
            if data and self._broken is None:
                self._queue.append(data)
                self._unwritten_bytes += len(data)
                self._condition.notify()

    def close(self) -> None:
        """Lets the writer end once it has written what is queued.  Does not wait."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    @property
    def full(self) -> bool:
        """Whether the caller should wait for `wake` before it puts more."""
        with self._condition:
            return self._unwritten_bytes >= _FULL_BYTES

    @property
    def idle(self) -> bool:
        """Whether everything has been written, or dropped because the output broke."""
        with self._condition:
            return self._unwritten_bytes == 0

    @property
    def broken(self) -> OSError | None:
        """Why nothing more can be written, e.g. BrokenPipeError; None while it can."""
        with self._condition:
            return self._broken

    def _write_all(self) -> None:
        while True:
            with self._condition:
                while not self._queue and not self._closed:
                    self._condition.wait()
                if not self._queue:
                    return
                data = b"".join(self._queue)
                self._queue.clear()
            try:
                self._write(data)
            except OSError as error:
                with self._condition:
                    self._broken = error
                    self._queue.clear()
                    self._unwritten_bytes = 0
                self._wake()
                return
            with self._condition:
                self._unwritten_bytes -= len(data)
            self._wake()

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self.fd, left) :]
            except BlockingIOError:
                # Whoever gave us the descriptor made it so; they may share it, so it stays.
                poll = select.poll()
                poll.register(self.fd, select.POLLOUT)
                poll.poll()
