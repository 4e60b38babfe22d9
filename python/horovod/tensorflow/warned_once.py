"""Warnings that a process prints once."""

from __future__ import annotations

import functools
import sys
import warnings

__all__ = ["warn_once"]

# Between this module and the program.
_LIBRARIES = {"horovod", "keras", "tensorflow", "tensorflow_estimator", "tf_keras"}


@functools.cache
def warn_once(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Warns of something, at the program's line, the first time it is seen in this process.

    Args:
      message: the whole text.
      category: of the warning.
    """
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _LIBRARIES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
