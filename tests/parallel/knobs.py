"""Knobs for an `init()` in a process that lives on after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

SPARSE_AUTO_DENSE = "HOROVOD_SPARSE_AUTO_DENSE"


@contextlib.contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Sets variables of this process, and then what they were before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text
