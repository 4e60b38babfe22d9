"""Everything the launcher prints: the ranks' lines, marked, and its own."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from horovod.runner.sink import Sink
from horovod.runner.tagging import LineTagger

__all__ = ["Console"]

_READ_BYTES = 65536
_STDOUT_FD = 1
_STDERR_FD = 2


@dataclass(eq=False)
class _Stream:
    """One output of one rank."""

    source: IO[bytes]
    sink: Sink
    tagger: LineTagger
    file_fd: int | None
    reading: bool = False
    open: bool = True


class Console:
    """Passes the ranks' output on to the launcher's own.

    Threads: all methods belong to the launcher's thread, which runs `selector`; the
    sinks' threads only ring the wake pipe.

    Args:
      selector: the launcher's; this class registers callables without arguments as data.
      timestamps: whether each line begins with the time of day.
      output_dir: a folder for copies without marks, rank.<rank>/stdout and stderr.
      size: number of ranks, for the width of their numbers in folder names.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        timestamps: bool = False,
        output_dir: str | None = None,
        size: int = 1,
    ) -> None:
        self._selector = selector
        self._timestamps = timestamps
        self._output_dir = output_dir
        self._digits = len(str(size - 1))
        self._streams: list[_Stream] = []
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)
        selector.register(self._wake_in, selectors.EVENT_READ, self._on_wake)
        self._err = Sink(_STDERR_FD, self._wake)
        # Two writers to one file or terminal would mix their lines.
        same = os.path.sameopenfile(_STDOUT_FD, _STDERR_FD)
        self._out = self._err if same else Sink(_STDOUT_FD, self._wake)
        self.bytes_read = 0  # of all streams; tells whether anything still comes

    def add_rank(self, rank: int, stdout: IO[bytes], stderr: IO[bytes]) -> None:
        """Begins to pass on a rank's output.

        Raises:
          OSError: the files in output_dir cannot be made.
        """
        for name, source, fd, sink in (
            ("stdout", stdout, _STDOUT_FD, self._out),
            ("stderr", stderr, _STDERR_FD, self._err),
        ):
            mark = f"[{rank}]<{name}>:".encode()
            tagger = LineTagger(partial(self._tag, mark), cut_at_returns=os.isatty(fd))
            stream = _Stream(source, sink, tagger, self._open_file(rank, name))
            self._streams.append(stream)
            self._keep_reading(stream)

    def say(self, text: str) -> None:
        """Prints a line of the launcher's own on standard error, after all that came before."""
        self._err.put(f"horovodrun: {text}\n".encode())

    @property
    def drained(self) -> bool:
        """Whether every stream of every rank has ended."""
        return not any(stream.open for stream in self._streams)

    @property
    def stuck(self) -> bool:
        """Whether a slow reader is what keeps the launcher from reading on."""
        return self._out.full or self._err.full

    @property
    def flushed(self) -> bool:
        """Whether all that was put has been written, or can never be."""
        return self._out.idle and self._err.idle

    @property
    def fault(self) -> str | None:
        """Says which output lost data, a full disk for example; a reader that left is no fault."""
        for name, sink in (("standard output", self._out), ("standard error", self._err)):
            if sink.broken and not isinstance(sink.broken, BrokenPipeError):
                return f"{name}: {sink.broken}; what the ranks printed after that is lost"
        return None

    def close_streams(self) -> None:
        """Stops reading; hands on what was read of lines without an end."""
        for stream in self._streams:
            self._end(stream)

    def close(self) -> None:
        """Lets the writers go.  Call after `flushed`, or lose the rest."""
        self._out.close()
        self._err.close()
        self._selector.unregister(self._wake_in)
        os.close(self._wake_in)
        # _wake_out stays open: a writer that hangs on a stopped reader may still ring it, and its
        # number must not be a stranger's by then.

    def _tag(self, mark: bytes) -> bytes:
        if not self._timestamps:
            return mark
        return time.strftime("%a %b %d %H:%M:%S %Y").encode() + mark

    def _open_file(self, rank: int, name: str) -> int | None:
        if self._output_dir is None:
            return None
        folder = Path(self._output_dir, f"rank.{rank:0{self._digits}d}")
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)

    def _wake(self) -> None:
        # Full: it will wake anyway.  Broken: the launcher is past listening.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._wake_out, b"x")

    def _on_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_in, 4096)
        for stream in self._open_streams():
            self._keep_reading(stream)

    def _open_streams(self) -> Iterator[_Stream]:
        return (stream for stream in list(self._streams) if stream.open)

    def _keep_reading(self, stream: _Stream) -> None:
        """Reads from a stream exactly while its data has somewhere to go."""
        if stream.sink.broken and stream.file_fd is None:
            # Nobody reads on.  The rank is to see what it would see without a launcher: a closed
            # pipe; so `horovodrun ... | head` ends as `... | head` does.
            self._end(stream)
            return
        wanted = not stream.sink.full
        if wanted and not stream.reading:
            self._selector.register(
                stream.source, selectors.EVENT_READ, lambda: self._on_readable(stream)
            )
        elif not wanted and stream.reading:
            self._selector.unregister(stream.source)
        stream.reading = wanted

    def _on_readable(self, stream: _Stream) -> None:
        if not stream.reading:  # stopped by an earlier event of the same batch
            return
        data = os.read(stream.source.fileno(), _READ_BYTES)
        if not data:
            self._end(stream)
            return
        self.bytes_read += len(data)
        if stream.file_fd is not None:
            self._write_file(stream, data)
        stream.sink.put(stream.tagger.feed(data))
        self._keep_reading(stream)

    def _write_file(self, stream: _Stream, data: bytes) -> None:
        assert stream.file_fd is not None
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(stream.file_fd, left) :]
        except OSError as error:
            self.say(f"--output-filename {self._output_dir}: {error}; this copy ends here")
            os.close(stream.file_fd)
            stream.file_fd = None

    def _end(self, stream: _Stream) -> None:
        if not stream.open:
            return
        if stream.reading:
            self._selector.unregister(stream.source)
        stream.reading = stream.open = False
        stream.sink.put(stream.tagger.close())
        stream.source.close()
        if stream.file_fd is not None:
            os.close(stream.file_fd)
