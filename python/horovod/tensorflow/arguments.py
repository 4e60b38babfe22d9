"""Checks of arguments that several functions have."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common import basics
from horovod.tensorflow import _compat

__all__ = [
    "is_variable",
    "listed",
    "listed_variables",
    "require_bool",
    "require_rank",
    "require_whole_number",
]


def require_bool(who: str, name: str, value: Any) -> None:
    """Raises ValueError unless an argument is True or False.

    Args:
      who: begins the error's text.
      name: of the argument.
      value: the argument.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{who}: {name}={value!r}; it must be True or False")


def require_whole_number(who: str, name: str, value: Any, least: int = 1) -> None:
    """Raises ValueError unless an argument is a whole number, and large enough.

    Args:
      who: begins the error's text.
      name: of the argument.
      value: the argument.
      least: what it is at least.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ValueError(f"{who}: {name}={value!r}; it must be a whole number, {least} or more")


def require_rank(who: str, name: str, value: Any) -> None:
    """Raises ValueError unless an argument is a rank: a whole number in [0, size).

    Args:
      who: begins the error's text.
      name: of the argument.
      value: the argument; before `init()`, which tells the size, any whole number from 0 is one.
    """
    require_whole_number(who, name, value, least=0)
    if basics.is_initialized() and value >= basics.size():
        raise ValueError(
            f"{who}: {name}={value!r}; it must be a rank, and there are {basics.size()}, from 0 on"
        )


def is_variable(value: Any) -> bool:
    """Returns whether a value is a variable: ref, resource or of Keras."""
    return isinstance(_compat.tensorflow_variable(value), (tf.Variable, tf.compat.v1.Variable))


def _is_value(value: Any) -> bool:
    """Returns whether something has one value, as a number, an array or a tensor."""
    if isinstance(value, tf.Tensor):
        return value.dtype not in (tf.resource, tf.variant)
    if isinstance(value, (np.ndarray, np.generic)):
        return bool(value.dtype != object)
    return isinstance(value, numbers.Number)


def listed(things: Any) -> list[Any] | None:
    """Makes a list of an iterable; None of what is none, or is one thing: text, variable, value."""
    if (
        not isinstance(things, Iterable)
        or isinstance(things, (str, bytes))
        or is_variable(things)
        or _is_value(things)
    ):
        return None
    return list(things)


def listed_variables(who: str, variables: Any, *, values: bool = False) -> list[Any]:
    """Makes a list of variables.

    Args:
      who: begins an error's text.
      variables: an iterable of them.
      values: whether tensors, arrays and numbers may stand for variables.

    Raises:
      ValueError: it is none, or something in it is no variable.
    """
    found = listed(variables)
    if found is None:
        raise ValueError(
            f"{who}: variables={variables!r}; pass a list of variables, such as model.variables"
        )
    for place, variable in enumerate(found):
        if variable is None:
            raise ValueError(f"{who}: variables[{place}] is None; leave it out")
        if not is_variable(variable) and not (values and _is_value(variable)):
            raise ValueError(
                f"{who}: variables[{place}] is {variable!r}, which is no variable; pass a list of "
                "variables, such as model.variables"
            )
    return found
