"""What the knobs that Python uses are set to, by the table that the build makes of the core's."""

from __future__ import annotations

import importlib
import os

__all__ = ["read", "value"]

_YES = ("1", "true", "yes", "on")

_values: dict[str, bool | str] = {}  # as the last init() read them


def read() -> None:
    """Reads the environment, once in an `init()`.

    The core has checked it before: what is no boolean does not come here.
    """
    for knob in importlib.import_module("horovod.common._knobs").KNOBS:
        text = os.environ.get(knob.env) or str(knob.default)
        _values[knob.env] = text.lower() in _YES if knob.type == "BOOL" else text


def value(env: str) -> bool | str:
    """Returns what a knob is set to, or its default.

    Args:
      env: the knob's variable.

    Returns:
      A bool for a knob of that type, else the text as it was set.

    Raises:
      KeyError: no `init()` has read the knobs, or there is no such knob.
    """
    return _values[env]
