"""Averages: the division, and the old way to ask for one, `average=True` next to `op=Average`."""

from __future__ import annotations

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import Average, ReduceOp, Sum
from horovod.tensorflow import _raw
from horovod.tensorflow.rank_ops import size_op
from horovod.tensorflow.warned_once import warn_once

__all__ = ["handle_average_backwards_compatibility", "over", "over_size"]


def handle_average_backwards_compatibility(
    op: ReduceOp | int | None, average: bool | None
) -> ReduceOp:
    """Makes one reduction of the two arguments that may name it.

    Example:
      >>> hvd.handle_average_backwards_compatibility(None, None).name
      'Average'

    Args:
      op: the reduction; default: Average.
      average: deprecated: True for Average, False for Sum.  Warned about once.

    Returns:
      The reduction.

    Raises:
      ValueError: both are given, or `op` is none of Average, Sum, Adasum, Min, Max and Product.
    """
    if average is None:
        return Average if op is None else ReduceOp(op)
    if op is not None:
        raise ValueError(
            f"op={ReduceOp(op).name} and average={average} are both given; leave out average"
        )
    chosen = Average if average else Sum
    warn_once(
        f"average={bool(average)} is deprecated; write op=hvd.{chosen.name}", DeprecationWarning
    )
    return chosen


def over_size(tensor: tf.Tensor, process_set: ProcessSet) -> tf.Tensor:
    """Divides a tensor by the number of ranks.

    Args:
      tensor: of any shape and a numeric dtype.
      process_set: whose ranks to count; they are counted when the op runs.

    Returns:
      A tensor of the same shape and dtype; integers are rounded toward zero.
    """
    return over(tensor, size_op(_raw.id_of(process_set, "size")))


def over(tensor: tf.Tensor, ranks: tf.Tensor) -> tf.Tensor:
    """Divides a tensor by a number of ranks, an integer of shape [], as `over_size` does."""
    if not tensor.dtype.is_integer:
        return tf.divide(tensor, tf.cast(ranks, tensor.dtype))
    # Not in a small type, which may not hold the number of ranks.
    quotient = tf.truncatediv(tf.cast(tensor, tf.int64), tf.cast(ranks, tf.int64))
    return tf.cast(quotient, tensor.dtype)
