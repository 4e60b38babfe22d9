"""What a process writes to standard error, by whatever way: Python, C++ or a child."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

__all__ = ["standard_error"]


@contextlib.contextmanager
def standard_error() -> Iterator[list[str]]:
    """Collects the lines written within the context; the list is filled at its end."""
    lines: list[str] = []
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            text = file.read()
            os.write(2, text)  # for the report of a test that fails
            lines.extend(text.decode(errors="replace").splitlines())
