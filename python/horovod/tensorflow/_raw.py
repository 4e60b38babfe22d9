"""One call of a raw collective op: its name on the wire, and its error in Python.

Every Python function that sends something goes through `call`, and makes its inputs in `awaited`,
so that the other ranks hear of what goes wrong there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from horovod.common import basics, core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from horovod.tensorflow import _compat, _ops

__all__ = [
    "awaited",
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
    "HorovodBroadcastInplace": "broadcast",
    "HorovodBroadcastInplaceResource": "broadcast",
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


@contextlib.contextmanager
def awaited(
    op_type: str,
    name: str | None,
    process_set: ProcessSet,
    who: str,
    eagerly: bool | None = None,
) -> Iterator[Callable[..., Any]]:
    """Is around what makes the inputs of a collective, which may fail on this rank alone.

    In eager code the others wait for it then.  So an error that comes before the call is told to
    them before it goes on; what the call itself raises, they know.

    Args:
      op_type: of the raw op that the others wait for.
      name: by which they match it; None for the one without a name.
      process_set: the ranks that take part.
      who: begins an error's text.
      eagerly: whether they wait; default: in eager code.

    Yields:
      `call` with `op_type`, `name` and `process_set_id`; to be called once, or not at all.

    Raises:
      ValueError: `init()` was not called; or the process set is not known, or none.
    """
    require_init(who)
    number = id_of(process_set, who)
    if eagerly is None:
        eagerly = _compat.executing_eagerly()
    called = False

    def call_it(*inputs: Any, **attrs: Any) -> Any:
        nonlocal called
        called = True
        return call(op_type, *inputs, name=name, process_set_id=number, **attrs)

    try:
        yield call_it
    except Exception as error:
        if eagerly and not called:
            refuse(op_type, name or op_type, number, error)
        raise


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
    except Exception as error:
        if eagerly and not _has_run(attrs, error):
            for awaited_name in attrs.get("variable_names", [name or op_type]):
                refuse(op_type, awaited_name, attrs.get("process_set_id", 0), error)
        if isinstance(error, (OverflowError, TypeError, ValueError)):
            raise tf.errors.InvalidArgumentError(None, None, f"{op_type}: {error}") from error
        raise
    finally:
        core.load().hvd_name_next(None)


def _whole(attr: str, value: Any) -> int:
    """Returns an attribute as an int; TensorFlow would cut off what follows the point."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{attr}={value!r}; it must be a whole number") from None


def _has_run(attrs: dict[str, Any], error: Exception) -> bool:
    """Returns whether an eager op that failed came to its kernel, which tells the other ranks."""
    if "variable_names" in attrs:  # this kernel takes no name
        return isinstance(error, (tf.errors.OpError, HorovodInternalError))
    return not core.load().hvd_take_next_name()


def refuse(op_type: str, name: str, process_set: int, error: Exception) -> None:
    """Tells the other ranks that this one cannot take part, so that they do not wait for it."""
    if op_type in _KINDS:
        request = core.Request(
            name=name.encode(),
            kind=core.KINDS.index(_KINDS[op_type]),
            process_set=process_set,
            grouped="Grouped" in op_type,
        )
        core.load().hvd_refuse(ctypes.byref(request), _reason(error).encode(errors="replace"))


def _reason(error: Exception) -> str:
    """Returns an error's text, after its class where that says more than the text alone."""
    says_all = isinstance(error, (ValueError, NotImplementedError, tf.errors.OpError))
    return str(error) if says_all and str(error) else f"{type(error).__name__}: {error}"
