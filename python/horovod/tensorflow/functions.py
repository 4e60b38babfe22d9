"""Giving all ranks the variables of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _compat, _raw
from horovod.tensorflow.arguments import listed, listed_variables
from horovod.tensorflow.collectives import broadcast
from horovod.tensorflow.variables import label

__all__ = [
    "BroadcastGlobalVariablesOp",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_variables",
]

_PLACE = "HorovodBroadcast_{}"  # the name of a variable that ranks match by its place in the list


def broadcast_variables(
    variables: Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> tf.Operation | None:
    """Assigns the root's values to the variables of all ranks.

    In a compat.v1 graph ranks match variables by name, so a rank may have others besides; in
    eager code and in a `tf.function`, where names are not unique, by their place in the list.

    Example:
      >>> v = tf.Variable([float(hvd.rank())])
      >>> hvd.broadcast_variables([v], root_rank=0)
      >>> v.numpy()  # on every rank
      array([0.], dtype=float32)

    Args:
      variables: of any kind (ref, resource, Keras) and shape; initialized on every rank.  The
        dtypes of `allreduce`.
      root_rank: whose values; in [0, size).
      process_set: the ranks that take part.
      inplace: whether the values are received where they belong, by `broadcast_`.

    Returns:
      In a compat.v1 graph, the operation to run.  In eager code None, when it is done; in a
      `tf.function` None, since that runs assignments by itself.

    Raises:
      ValueError: `init()` was not called; or something is no variable.
      tf.errors.FailedPreconditionError: the ranks' variables differ in shape or dtype.
      tf.errors.InvalidArgumentError: a variable's dtype is none of these, such as string; the root
        is no rank of the set.
      HorovodInternalError: in eager code, a rank was lost or has left.
    """
    if inplace:
        return broadcast_(variables, root_rank, process_set=process_set)
    by_place = _compat.graph_is_eager_outside()
    assigned = []
    found = _listed("broadcast_variables", variables, process_set, at_once=False)
    for variable, name in zip(found, _names(found)):
        value = broadcast(variable, root_rank, name=name, process_set=process_set)
        assigned.append(variable.assign(value))
    return None if by_place else tf.group(*assigned)


def _listed(
    who: str, variables: Iterable[Any], process_set: ProcessSet, at_once: bool
) -> list[Any]:
    """Makes a list of variables that can be broadcast; where there is none, tells other ranks.

    Args:
      who: begins an error's text.
      variables: as for `broadcast_variables`.
      process_set: the ranks that take part.
      at_once: whether all are in flight at once in eager code, rather than one after another.

    Raises:
      ValueError: one of them is no variable; or `init()` was not called.
      tf.errors.InvalidArgumentError: one is of a dtype that cannot be broadcast.
    """
    _raw.require_init(who)
    number = _raw.id_of(process_set, who)
    given = listed(variables)
    try:
        found = listed_variables(who, variables if given is None else given)
        for variable in found:
            dtype = _compat.tensorflow_variable(variable).dtype.base_dtype.name
            if dtype not in core.DTYPES:
                text = (
                    f"{who}: variable {label(variable)!r} is of dtype {dtype}, which collectives "
                    "do not take; leave it out of the list, or of the graph's global variables by "
                    "collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES]"
                )
                raise tf.errors.InvalidArgumentError(None, None, text)
    except (ValueError, tf.errors.InvalidArgumentError) as error:
        if _compat.executing_eagerly():
            awaited = len(given) if at_once and given is not None else 1
            for place in range(awaited):
                _raw.refuse("HorovodBroadcast", _PLACE.format(place), number, error)
        raise
    return found


def _names(variables: Sequence[Any]) -> list[str]:
    """Returns the names by which ranks match variables; see `broadcast_variables`."""
    if _compat.graph_is_eager_outside():
        return [_PLACE.format(place) for place in range(len(variables))]
    return [f"HorovodBroadcast_{variable.name}" for variable in variables]


def broadcast_(
    variables: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> tf.Operation | None:
    """Gives the variables of all ranks the root's values, in their own memory.

    Ranks match variables as in `broadcast_variables`.  All are in flight at once.

    Example:
      >>> v = tf.Variable([float(hvd.rank())])
      >>> hvd.broadcast_([v], root_rank=0)
      >>> v.numpy()  # on every rank
      array([0.], dtype=float32)

    Args:
      variables: of any kind (ref, resource, Keras) and shape; initialized on every rank.  The
        dtypes of `allreduce`.
      root_rank: whose values; in [0, size).
      name: of the ops in a graph.
      process_set: the ranks that take part.

    Returns:
      In a compat.v1 graph, the operation to run.  In eager code None, when it is done; in a
      `tf.function` None, since that runs it by itself.

    Raises:
      ValueError: `init()` was not called; or something is no variable.
      tf.errors.FailedPreconditionError: the ranks' variables differ in shape or dtype.
      tf.errors.InvalidArgumentError: a variable's dtype is none of these, such as string; the root
        is no rank of the set; or, in eager code, a variable has no value yet.
      HorovodInternalError: in eager code, a rank was lost or has left.
    """
    found = _listed("broadcast_", variables, process_set, at_once=True)
    by_place = _compat.graph_is_eager_outside()
    names = _names(found)
    if by_place and not _compat.executing_eagerly():
        # Two calls in one function are in flight at once.
        graph = tf.compat.v1.get_default_graph()
        names = [graph.unique_name(wire_name).rpartition("/")[2] for wire_name in names]
    kinds: dict[Any, list[tuple[Any, str]]] = {}  # what one op can take
    for variable, wire_name in zip(found, names):
        inner = _compat.tensorflow_variable(variable)
        kind = None if hasattr(inner, "handle") else inner.dtype
        kinds.setdefault(kind, []).append((inner, wire_name))
    ops = []
    for kind, members in kinds.items():
        handles = [_compat.handle(variable) for variable, _ in members]
        ops.append(
            _raw.call(
                "HorovodBroadcastInplaceResource" if kind is None else "HorovodBroadcastInplace",
                handles,
                name=name,
                root_rank=root_rank,
                process_set_id=_raw.id_of(process_set, "broadcast_"),
                variable_names=[wire_name for _, wire_name in members],
                ignore_name_scope=not by_place,
            )
        )
    return None if by_place else tf.group(*ops)


def broadcast_global_variables(root_rank: int) -> tf.Operation:
    """Assigns the root's values to the global variables of all ranks, in a compat.v1 graph.

    Example:
      >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      ...     v = tf.compat.v1.get_variable("v", initializer=float(hvd.rank()))
      ...     session.run(tf.compat.v1.global_variables_initializer())
      ...     session.run(hvd.broadcast_global_variables(root_rank=0))
      ...     print(session.run(v))  # on every rank
      0.0

    Args:
      root_rank: whose values; in [0, size).

    Returns:
      The operation, which every rank must run, after it has initialized its variables.

    Raises:
      RuntimeError: in eager code or a `tf.function`, where there are no global variables.
      ValueError: `init()` was not called.
      tf.errors.InvalidArgumentError: a variable is of a dtype that `allreduce` does not take, such
        as string.
    """
    if _compat.graph_is_eager_outside():
        raise RuntimeError(
            "broadcast_global_variables: eager code has no collection of global variables; call "
            "hvd.broadcast_variables(model.variables, root_rank=...)"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


def BroadcastGlobalVariablesOp(root_rank: int) -> tf.Operation:
    """Makes the operation that gives all ranks the root's variables: `broadcast_global_variables`.

    Run it once, on EVERY rank, after the variables are initialized or restored.  On one rank alone
    (tutorials have it under `if rank == 0`) it waits for the others.

    Args:
      root_rank: whose values; in [0, size).

    Returns:
      The operation.

    Raises:
      RuntimeError: in eager code or a `tf.function`, where there are no global variables.
      ValueError: `init()` was not called.

    Example:
      >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
      ...     weights = tf.compat.v1.get_variable("weights", initializer=1.0 + hvd.rank())
      ...     session.run(tf.compat.v1.global_variables_initializer())
      ...     _ = session.run(hvd.BroadcastGlobalVariablesOp(0))
      ...     print(session.run(weights))  # on every rank
      1.0
    """
    return broadcast_global_variables(root_rank)
