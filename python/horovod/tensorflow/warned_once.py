"""Warnings that a process prints once."""

from __future__ import annotations

import functools
import warnings

__all__ = ["warn_once"]


@functools.cache
def warn_once(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warns of something the first time it is seen in this process.

    Args:
      message: the whole text.
      category: of the warning.
    """
    # The frames between this one and the program: the check, and the function that it is of.
    warnings.warn(message, category, stacklevel=4)
