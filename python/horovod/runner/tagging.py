"""Cuts a rank's output into lines and marks each with where it came from.  Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["LineTagger"]

# After a newline, or after a carriage return that is not half of a Windows line end.  A return at
# the very end waits: the next byte tells which it is.
_TERMINAL_CUT = re.compile(rb"(?<=\n)|(?<=\r)(?=[^\n])")


class LineTagger:
    """Turns pieces of one stream into whole, marked lines.

    Bytes are never decoded, so whatever they are, they pass unchanged.

    Args:
      tag: called for each group of lines; returns what stands before each, e.g. b"[1]<stdout>:".
      cut_at_returns: also hand on what ends in a carriage return, so that a progress bar moves on
        a terminal.  Elsewhere a line is kept whole.
      max_line_bytes: a line without end is cut here, so that memory stays bounded.
    """

    def __init__(
        self,
        tag: Callable[[], bytes],
        *,
        cut_at_returns: bool = False,
        max_line_bytes: int = 16 << 20,
    ) -> None:
        self._tag = tag
        self._cut_at_returns = cut_at_returns
        self._max_line_bytes = max_line_bytes
        self._partial = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Takes what was read; returns the lines that are complete now, marked."""
        if self._cut_at_returns:
            lines = _TERMINAL_CUT.split(bytes(self._partial) + data)
            self._partial = bytearray(lines.pop())
            tag = self._tag()
            out = b"".join(tag + line for line in lines)
        else:
            whole, newline, rest = data.rpartition(b"\n")
            if not newline:
                self._partial += data
                out = b""
            else:
                tag = self._tag()
                text = bytes(self._partial) + whole
                out = tag + text.replace(b"\n", b"\n" + tag) + b"\n"
                self._partial = bytearray(rest)
        if len(self._partial) > self._max_line_bytes:
            out += self.close()
        return out

    def close(self) -> bytes:
        """Returns the last line, which had no newline, with one, so that no other joins it."""
        if not self._partial:
            return b""
        line = self._tag() + bytes(self._partial) + b"\n"
        self._partial = bytearray()
        return line
