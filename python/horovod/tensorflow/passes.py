"""Counts the backward passes of a step, and keeps what lasts from one to the next.

All of it is in local variables, which no checkpoint holds.  They initialise themselves, so a
program that initialises its global variables alone works too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat

__all__ = ["PassCounter", "after", "local_variable", "require_known_shape"]


def local_variable(initial: tf.Tensor, name: str, shape: list[int | None] | None = None) -> Any:
    """Makes a variable that is not saved, outside of any function, branch or loop.

    Args:
      initial: its first value, made in `tf.init_scope`.
      name: of its ops.
      shape: where it is to take values of other shapes than `initial`.
    """
    return tf.compat.v1.Variable(
        initial,
        trainable=False,
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        validate_shape=shape is None,
        shape=shape,
        use_resource=True,
        name=name,
    )


def require_known_shape(who: str, variable: Any) -> None:
    """Raises ValueError unless a variable's shape is known in the graph.

    Args:
      who: begins the error's text.
      variable: of compat.v1.
    """
    if not variable.shape.is_fully_defined():
        raise ValueError(
            f"{who}: variable {variable.name!r} has the shape {variable.shape}; what is kept for "
            "it between passes needs a shape that is fully known"
        )


class PassCounter:
    """Counts passes, in a local variable, and says which one ends a step.

    Attributes:
      graph: the compat.v1 graph that it belongs to; None outside of one.
      count: the passes since the last step, an int64 variable.
    """

    def __init__(self, passes_per_step: int) -> None:
        """Makes a counter.

        Args:
          passes_per_step: at least 1.
        """
        self._passes_per_step = passes_per_step
        self.graph = _compat.outer_graph()
        with tf.init_scope():
            self.count = local_variable(tf.zeros([], tf.int64), "passes")

    def initialised(self, clear: Callable[[tf.Tensor], list[Any]]) -> Any:
        """Returns the op that initialises the counter, and what goes with it, at first use.

        Args:
          clear: as for `restart`.
        """
        if self.graph is None:
            return tf.no_op()
        return _compat.cond(
            self.count.is_initialized(),
            lambda: [tf.constant(True)],
            lambda: after(self.restart(clear), [tf.constant(True)]),
            "initialised",
        )[0].op

    def add(self, ops: Sequence[Any]) -> tf.Tensor:
        """Counts a pass.

        Args:
          ops: what is to run first.

        Returns:
          Whether this pass ends a step.
        """
        with tf.control_dependencies(ops):
            added = self.count.assign_add(1, read_value=False)
        with tf.control_dependencies([added]):
            return self.count.read_value() >= self._passes_per_step

    def restart(self, clear: Callable[[tf.Tensor], list[Any]]) -> list[Any]:
        """Returns the ops that begin a new step.

        Args:
          clear: makes those for what goes with the counter; it gets a 0 that TensorFlow does not
            know to be one.
        """
        reset = self.count.assign(0, read_value=False)
        with tf.control_dependencies([reset]):
            return [reset, *clear(self.count.read_value())]


def after(ops: Sequence[Any], tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Returns tensors that are there only after some ops have run."""
    with tf.control_dependencies(list(ops)):
        return [tf.identity(tensor) for tensor in tensors]
