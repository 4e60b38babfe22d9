"""Rank and size as tensors, read when the op runs.

A graph that is saved, or that outlives a change of the ranks, holds no number that was true when
it was built.
"""

from __future__ import annotations

import tensorflow as tf

from horovod.tensorflow import _raw

__all__ = ["local_rank_op", "local_size_op", "process_set_included_op", "rank_op", "size_op"]


def rank_op(name: str | None = None) -> tf.Tensor:
    """Returns this process's rank as an int32 scalar.

    Example:
      >>> int(hvd.rank_op())  # 2 ranks: 0 and 1
      0

    Args:
      name: of the node.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the op runs after `shutdown()`.
    """
    return _read("HorovodRank", name=name)


def local_rank_op(name: str | None = None) -> tf.Tensor:
    """Returns this process's rank among those of its host, as an int32 scalar.

    Example:
      >>> int(hvd.local_rank_op())  # 2 ranks on one host: 0 and 1
      0

    Args:
      name: of the node.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the op runs after `shutdown()`.
    """
    return _read("HorovodLocalRank", name=name)


def size_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns the number of ranks as an int32 scalar.

    Example:
      >>> int(hvd.size_op())  # 2 ranks: 2
      1

    Args:
      process_set_id: of the set whose ranks are counted; 0 is all ranks.
      name: of the node.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the op runs after `shutdown()`.
      tf.errors.InvalidArgumentError: there is no such process set.
    """
    return _read("HorovodSize", process_set_id=process_set_id, name=name)


def local_size_op(name: str | None = None) -> tf.Tensor:
    """Returns the number of ranks on this host as an int32 scalar.

    Example:
      >>> int(hvd.local_size_op())  # 2 ranks on one host: 2
      1

    Args:
      name: of the node.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the op runs after `shutdown()`.
    """
    return _read("HorovodLocalSize", name=name)


def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> tf.Tensor:
    """Returns whether this rank is in a process set, as an int32 scalar: 1 if so, else 0.

    Example:
      >>> all_ranks = hvd.global_process_set
      >>> int(hvd.process_set_included_op(all_ranks.process_set_id))  # on every rank
      1

    Args:
      process_set_id: of the set.
      name: of the node.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the op runs after `shutdown()`.
      tf.errors.InvalidArgumentError: there is no such process set.
    """
    return _read("HorovodProcessSetIncluded", process_set_id=process_set_id, name=name)


def _read(op_type: str, **attrs: str | int | None) -> tf.Tensor:
    _raw.require_init(op_type)
    return _raw.function_of(op_type)(**attrs)
