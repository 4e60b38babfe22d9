"""Collectives on values: numbers, lists, arrays and variables in, NumPy out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow import _compat, collectives, exchange, functions
from horovod.tensorflow.averaging import handle_average_backwards_compatibility
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.other_keras import WHAT_TO_DO, is_keras_3

__all__ = ["allgather", "allreduce", "broadcast", "broadcast_global_variables", "reducescatter"]


def session() -> tf.compat.v1.Session:
    """Returns the session in which Keras of compat.v1 graphs keeps its variables.

    Raises:
      RuntimeError: `tf.keras` is Keras 3, which has none.
    """
    if is_keras_3():
        raise RuntimeError(
            "Keras 3 has no session to find the value of a compat.v1 variable in; run the ops of "
            f"horovod.tensorflow in your own session, or, with models of tf_keras: {WHAT_TO_DO}"
        )
    return tf.compat.v1.keras.backend.get_session()


def _run(call: Callable[[tf.Tensor], tf.Tensor], value: Any) -> Any:
    """Runs a collective on a value at once, also where nothing else runs eagerly."""
    if _compat.executing_eagerly():
        return call(tf.convert_to_tensor(value)).numpy()
    if isinstance(value, (tf.Tensor, tf.Variable)):
        value = session().run(value)
    with tf.Graph().as_default(), tf.compat.v1.Session() as own:
        return own.run(call(tf.convert_to_tensor(value)))


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | None = None,
    compression: type[Compressor] = Compression.none,
) -> Any:
    """Combines a value over all ranks, element by element.

    Example:
      >>> hvd.allreduce([1.0, 2.0], op=hvd.Sum)  # 2 ranks: [2., 4.]
      array([1., 2.], dtype=float32)

    Args:
      value: a number, list, array, tensor or variable of the same shape on all ranks.
      name: the same on all ranks, and in flight once at a time.
      average: deprecated: True is op=Average, False is op=Sum.
      prescale_factor: multiplies each rank's value before the reduction.
      postscale_factor: multiplies the result.
      op: Average (the default), Sum, Min, Max, Product or Adasum.
      compression: what to make of the value for the wire.

    Returns:
      A NumPy array or number of the same shape and dtype.

    Raises:
      ValueError: `init()` was not called; or both `average` and `op` are given.
    """
    reduction = handle_average_backwards_compatibility(op, average)
    return _run(
        lambda tensor: collectives.allreduce(
            tensor,
            name=name,
            op=reduction,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            compression=compression,
        ),
        value,
    )


def allgather(value: Any, name: str | None = None) -> Any:
    """Joins every rank's rows, in rank order.

    Example:
      >>> hvd.allgather([hvd.rank()])  # 2 ranks: [0, 1]
      array([0], dtype=int32)

    Args:
      value: a list, array, tensor or variable of shape [rows, ...]; the rows may differ by rank.
      name: the same on all ranks, and in flight once at a time.

    Returns:
      A NumPy array of shape [sum of rows, ...].

    Raises:
      ValueError: `init()` was not called.
    """
    return _run(lambda tensor: collectives.allgather(tensor, name=name), value)


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Gives every rank the root's value.

    Example:
      >>> hvd.broadcast([hvd.rank()], root_rank=0)  # on every rank
      array([0], dtype=int32)

    Args:
      value: a number, list, array, tensor or variable of the same shape on all ranks.
      root_rank: whose value; in [0, size).
      name: the same on all ranks, and in flight once at a time.

    Returns:
      A NumPy array or number of the same shape and dtype.

    Raises:
      ValueError: `init()` was not called.
    """
    return _run(lambda tensor: collectives.broadcast(tensor, root_rank, name=name), value)


def reducescatter(value: Any, name: str | None = None, op: ReduceOp = Average) -> Any:
    """Combines a value over all ranks, and gives each rank its part of the rows.

    Example:
      >>> hvd.reducescatter([1.0, 2.0], op=hvd.Sum)  # 2 ranks: [2.] and [4.]
      array([1., 2.], dtype=float32)

    Args:
      value: a list, array, tensor or variable of shape [rows, ...], the same on all ranks.
      name: the same on all ranks, and in flight once at a time.
      op: Average, Sum, Min, Max or Product.

    Returns:
      A NumPy array of shape [rows of this rank, ...]; the first ranks get the rest.

    Raises:
      ValueError: `init()` was not called.
    """
    return _run(lambda tensor: exchange.reducescatter(tensor, op=op, name=name), value)


def broadcast_global_variables(root_rank: int) -> None:
    """Gives all ranks the root's global variables, in the session of compat.v1 Keras.

    Args:
      root_rank: whose values; in [0, size).

    Raises:
      RuntimeError: in eager code, where there are no global variables; or with Keras 3.
      ValueError: `init()` was not called.
    """
    if _compat.executing_eagerly():
        functions.broadcast_global_variables(root_rank)  # says what to call instead
    keras_session = session()
    with keras_session.graph.as_default():
        keras_session.run(functions.broadcast_global_variables(root_rank))
