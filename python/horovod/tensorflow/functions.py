"""Giving all ranks the variables of one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _compat
from horovod.tensorflow.collectives import broadcast

__all__ = ["broadcast_global_variables", "broadcast_variables"]


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> tf.Operation | None:
    """Assigns the root's values to the variables of all ranks.

    In a compat.v1 graph ranks match variables by name, so a rank may have others besides; in
    eager code and in a `tf.function`, where names are not unique, by their place in the list.

    Args:
      variables: of any kind (ref, resource, Keras) and shape; initialized on every rank.
      root_rank: whose values; in [0, size).
      process_set: the ranks that take part.
      inplace: False; without a second copy of the values is not built yet.

    Returns:
      In a compat.v1 graph, the operation to run.  In eager code None, when it is done; in a
      `tf.function` None, since that runs assignments by itself.

    Raises:
      NotImplementedError: `inplace`.
      ValueError: `init()` was not called.
    """
    if inplace:
        raise NotImplementedError(
            "broadcast_variables: inplace=True is not built yet; leave it out"
        )
    by_place = _compat.graph_is_eager_outside()
    assigned = []
    for place, variable in enumerate(variables):
        name = f"HorovodBroadcast_{place if by_place else variable.name}"
        value = broadcast(variable, root_rank, name=name, process_set=process_set)
        assigned.append(variable.assign(value))
    return None if by_place else tf.group(*assigned)


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Assigns the root's values to the global variables of all ranks, in a compat.v1 graph.

    Args:
      root_rank: whose values; in [0, size).

    Returns:
      The operation, which every rank must run, after it has initialized its variables.

    Raises:
      RuntimeError: in eager code or a `tf.function`, where there are no global variables.
      ValueError: `init()` was not called.
    """
    if _compat.graph_is_eager_outside():
        raise RuntimeError(
            "broadcast_global_variables: eager code has no collection of global variables; call "
            "hvd.broadcast_variables(model.variables, root_rank=...)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)
