"""Adds up the gradients of several backward passes before they are reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat

__all__ = ["GradientSums"]


def _graph() -> Any:
    """Returns the compat.v1 graph that ops go into; None in eager code and functions."""
    return None if _compat.graph_is_eager_outside() else tf.compat.v1.get_default_graph()


def _variable(shape: Any, dtype: tf.DType) -> tf.Variable:
    """Makes a variable of zeros that no checkpoint holds."""
    with tf.init_scope():
        zeros = tf.zeros(shape, dtype)
        if _graph() is None:
            return tf.Variable(zeros, trainable=False)
        collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
        return tf.compat.v1.Variable(
            zeros, trainable=False, collections=collections, use_resource=True
        )


def _read(variable: tf.Variable) -> tf.Tensor:
    """Returns a variable's value; zeros if no program has initialized it."""
    if _graph() is None:
        return variable.read_value()
    return tf.cond(
        tf.compat.v1.is_variable_initialized(variable),
        variable.read_value,
        lambda: tf.zeros(variable.shape, variable.dtype),
    )


class GradientSums:
    """The sums of this rank's gradients since the last reduction.

    Each list of variables has sums and a count of its own, so that a program may train some in one
    call and some in another.  They live in variables that are no part of a model, an optimizer or a
    checkpoint.  In a compat.v1 graph those are local variables, and need no initialization.

    Args:
      passes: the number of backward passes that make one update.
      average: whether the sum is divided by that number.
    """

    def __init__(self, passes: int, average: bool) -> None:
        self._passes = passes
        self._average = average
        self._counts: dict[Any, tf.Variable] = {}  # by graph and list of trained variables
        self._sums: dict[Any, tf.Variable] = {}  # by these and the trained variable

    def add(
        self, gradients: Sequence[Any], variables: Sequence[tf.Variable]
    ) -> tuple[tf.Tensor, list[tf.Tensor | None]]:
        """Adds the gradients of one pass.

        Args:
          gradients: tensors, `tf.IndexedSlices` or None, which adds nothing.
          variables: what they belong to; of known shape.

        Returns:
          A bool of shape [], whether this pass is the last one of an update; and the sums or
          averages, dense, None where no pass has had a gradient.  The last pass starts anew.
        """
        graph = _graph()
        trained = (graph, tuple(variable.ref() for variable in variables))
        if trained not in self._counts:
            self._counts[trained] = _variable([], tf.int64)
        count = _read(self._counts[trained]) + 1
        last = count >= self._passes
        assigned = [self._counts[trained].assign(tf.where(last, tf.zeros_like(count), count))]
        totals: list[tf.Tensor | None] = []
        for gradient, variable in zip(gradients, variables):
            key = (trained, variable.ref())
            if gradient is None and key not in self._sums:
                totals.append(None)
                continue
            if key not in self._sums:
                self._sums[key] = _variable(variable.shape, gradient.dtype)
            total = _read(self._sums[key])
            if gradient is not None:
                total += tf.convert_to_tensor(gradient)
            assigned.append(self._sums[key].assign(tf.where(last, tf.zeros_like(total), total)))
            totals.append(total / self._passes if self._average else total)
        if graph is None:
            return last, totals
        with tf.control_dependencies(assigned):  # a session runs what its fetches need
            return tf.identity(last), totals
