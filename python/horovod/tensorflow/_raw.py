"""One call of a raw collective op: its name on the wire, and its error in Python.

Every Python function that sends something goes through `call`.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from horovod.common import basics, core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import _compat, _ops

__all__ = [
    "call",
    "default_name",
    "function_of",
    "id_of",
    "refuse",
    "require_init",
    "require_process_set",
]

# What the core calls the ops whose arguments can be wrong.
_KINDS = {
    "HorovodAllreduce": "allreduce",
    "HorovodGroupedAllreduce": "allreduce",
    "HorovodAllgather": "allgather",
    "HorovodGroupedAllgather": "allgather",
    "HorovodBroadcast": "broadcast",
    "HorovodAlltoall": "alltoall",
    "HorovodReducescatter": "reducescatter",
    "HorovodGroupedReducescatter": "reducescatter",
}

_NOT_IN_NODE_NAMES = re.compile(r"[^A-Za-z0-9_.\-/]")
_FIRST_OF_NODE_NAME = re.compile(r"[A-Za-z0-9.]")


@functools.cache
def function_of(op_type: str) -> Any:
    """Returns the function of a raw op, `horovod_allreduce` for "HorovodAllreduce"."""
    return getattr(_ops.library(), re.sub(r"(?<!^)(?=[A-Z])", "_", op_type).lower())


def require_init(who: str) -> None:
    """Raises ValueError unless `init()` was called."""
    if not basics.is_initialized():
        raise ValueError(f"{who}: Horovod is not initialized; call hvd.init() first")


def require_process_set(process_set: Any, who: str) -> None:
    """Raises ValueError unless something is a process set, known to the ranks or not yet."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(
            f"{who}: process_set={process_set!r}; pass the hvd.ProcessSet that hvd.init or "
            "hvd.add_process_set made known"
        )


def id_of(process_set: ProcessSet, who: str) -> int:
    """Returns the number by which the ranks know a process set.

    Raises:
      ValueError: the set was not added on this rank, or it is none.
    """
    require_process_set(process_set, who)
    number = process_set.process_set_id
    if number is None:
        raise ValueError(
            f"{who}: {process_set} is not known to the ranks; first pass it to "
            "hvd.init(process_sets=...) or to hvd.add_process_set()"
        )
    return int(number)


def default_name(op_type: str, tensor: Any) -> str | None:
    """Returns the name of a collective that was given none.

    Args:
      op_type: of the raw op.
      tensor: what the program passed.

    Returns:
      In a graph, the op type and the tensor's name; None where tensors have no name, as in eager
      code.
    """
    name = None if _compat.executing_eagerly() else getattr(tensor, "name", None)
    return f"{op_type}_{name}" if isinstance(name, str) and name else None


def _node_name(name: str) -> str:
    """Makes of any string a name that TensorFlow takes for a node."""
    name = _NOT_IN_NODE_NAMES.sub("_", name)
    return name if _FIRST_OF_NODE_NAME.match(name) else f"Horovod{name}"


@contextlib.contextmanager
def _lost_job_is_internal_error() -> Iterator[None]:
    """Turns the error of an op that ended with the job into the one that elastic code catches.

    Only eager code comes here with an error: inside a session or a function the op ends later,
    and TensorFlow's own error is raised there.
    """
    try:
        yield
    except tf.errors.UnknownError as error:  # the core uses it for nothing else
        raise HorovodInternalError(error.message) from error


def call(op_type: str, *inputs: Any, name: str | None = None, **attrs: Any) -> Any:
    """Runs a raw collective op, or adds it to the graph.

    Ranks are matched by name.  In a graph that is the node's name, which TensorFlow keeps unique.
    Eager ops have no node, and TensorFlow keeps a kernel for every value of an attribute, for
    ever; so there the name goes past it, to the kernel that runs next on this thread.  Only what a
    tape records has it as an attribute, `tensor_name`, for the name of its gradient.  Without a
    name all eager calls of one type share one, so that only one can be in flight.

    Args:
      op_type: "HorovodAllreduce" and so on.
      *inputs: the op's inputs, in order.
      name: the same on all ranks.
      **attrs: the op's attributes.

    Returns:
      What the op returns.

    Raises:
      ValueError: `init()` was not called.
      HorovodInternalError: in eager code, a rank was lost or has left, or Horovod was shut down.
      tf.errors.InvalidArgumentError: the inputs are of no dtype or form that the op takes; eager
        ranks that wait for this one are told.
      tf.errors.OpError: in eager code, what API documents for the op.
    """
    require_init(op_type)
    eagerly = _compat.executing_eagerly()
    if eagerly:
        if name and _compat.tape_may_record():
            attrs["tensor_name"] = name
        core.load().hvd_name_next((name or op_type).encode())
    elif name:
        attrs["name"] = _node_name(name)
    try:
        if "root_rank" in attrs:
            attrs["root_rank"] = _whole("root_rank", attrs["root_rank"])
        with _lost_job_is_internal_error():
            return function_of(op_type)(*inputs, **attrs)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        if eagerly and core.load().hvd_take_next_name():
            # TensorFlow has not come to the kernel, so the other ranks have not heard of it.
            refuse(op_type, name or op_type, attrs.get("process_set_id", 0), error)
        if isinstance(error, tf.errors.OpError):
            raise
        raise tf.errors.InvalidArgumentError(None, None, f"{op_type}: {error}") from error
    finally:
        core.load().hvd_name_next(None)


def _whole(attr: str, value: Any) -> int:
    """Returns an attribute as an int; TensorFlow would cut off what follows the point."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{attr}={value!r}; it must be a whole number") from None


def refuse(op_type: str, name: str, process_set: int, error: Exception) -> None:
    """Tells the other ranks that this one cannot take part, so that they do not wait for it."""
    if op_type in _KINDS:
        request = core.Request(
            name=name.encode(),
            kind=core.KINDS.index(_KINDS[op_type]),
            process_set=process_set,
            grouped="Grouped" in op_type,
        )
        core.load().hvd_refuse(ctypes.byref(request), str(error).encode())
