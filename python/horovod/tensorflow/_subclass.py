"""Gives an object a few more methods, by a subclass of its own class made at run time.

A wrapped optimizer or tape is still one of its class: `isinstance` holds, private methods that
call each other meet the new ones, and whatever its base class saves and restores is the same.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

from horovod.tensorflow import _compat

__all__ = ["Extension", "OptimizerExtension", "extended"]


class Extension:
    """The base of a set of methods to add.

    What they need to know they keep in slots, since the object's `__dict__` is shared.

    Attributes:
      _hvd_original: the object that was extended.
      _hvd_reduction: how gradients are reduced.
    """

    __slots__ = ("_hvd_original", "_hvd_reduction")

    _hvd_original: Any
    _hvd_reduction: Any


class OptimizerExtension(Extension):
    """What every wrapped optimizer has, whichever method of its class reduces the gradients."""

    __slots__ = ()

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradient of a variable on its rank; see `scale_local_gradients`.

        Args:
          var: one of the variables that are trained.

        Raises:
          ValueError: it is no variable.
        """
        self._hvd_reduction.keep_local(var)

    def _allreduce_grads(
        self, grads: Sequence[Any], vars: Sequence[Any] | None = None
    ) -> list[Any]:
        """Reduces gradients; programs that compute their own call this."""
        return self._hvd_reduction.reduce(grads, vars)

    def _allreduce(self, grads: Any, vars: Any = None) -> Any:
        """Reduces one gradient, or a list of them."""
        if isinstance(grads, (list, tuple)):
            return self._allreduce_grads(grads, vars)
        return self._allreduce_grads([grads], None if vars is None else [vars])[0]


# A class is made once: programs wrap an optimizer for each of many fits.
_made: dict[tuple[type, type], type] = {}


def _subclass(extension: type[Extension], base: type) -> type:
    made = _made.get((extension, base))
    if made is None:
        made = types.new_class(
            f"Distributed{base.__name__}",
            (extension, base),
            exec_body=lambda body: body.update(
                __module__=extension.__module__, __doc__=extension.__doc__
            ),
        )
        _made[extension, base] = made
    return made


def extended(original: Any, extension: type[Extension], reduction: Any, **slots: Any) -> Any:
    """Returns an object with the state of another, and more methods.

    The two share one state: what happens to one happens to the other.

    Args:
      original: an instance of any class that keeps its state in `__dict__`.
      extension: the methods to add, which come before the class's own.
      reduction: the value of `_hvd_reduction`.
      **slots: the values of the extension's own slots.

    Returns:
      An instance of a subclass of `extension` and of the original's class.

    Raises:
      ValueError: the original, or what it scales the loss for, has such methods already.
    """
    base = type(original)
    for wrapped in (original, _compat.scaled_optimizer(original)):
        if isinstance(wrapped, Extension):
            raise ValueError(
                f"{type(wrapped).__name__} is distributed already: its gradients would be reduced "
                "twice; wrap it once"
            )
    result: Any = object.__new__(_subclass(extension, base))
    object.__setattr__(result, "__dict__", original.__dict__)
    object.__setattr__(result, "_hvd_original", original)
    object.__setattr__(result, "_hvd_reduction", reduction)
    for name, value in slots.items():
        object.__setattr__(result, name, value)
    return result
