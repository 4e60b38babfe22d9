"""Python objects between ranks.

They travel pickled and outside TensorFlow, so the calls work alike in eager code, while a graph is
built, and beside a session; they are made when they are called, never when a graph runs.  What is
unpickled comes from the ranks of the job, which have proved that they know its secret.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle
import tensorflow as tf

from horovod.common import basics, byte_exchange, core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _raw

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn"]

# As tf_ops/adapters/tf/status.cc has it, and `_raw`: the op's UnknownError is an internal error.
_ERRORS: dict[int, type[tf.errors.OpError]] = {
    core.CANCELLED: tf.errors.CancelledError,
    core.INVALID_ARGUMENT: tf.errors.InvalidArgumentError,
    core.FAILED_PRECONDITION: tf.errors.FailedPreconditionError,
    core.NOT_INITIALIZED: tf.errors.FailedPreconditionError,
    core.OUT_OF_RANGE: tf.errors.OutOfRangeError,
    core.UNIMPLEMENTED: tf.errors.UnimplementedError,
}
_LOST_JOB = (core.PEER_LOST, core.DEADLINE_EXCEEDED, core.SHUTDOWN)


@contextlib.contextmanager
def _as_op_errors() -> Iterator[None]:
    """Raises what an eager op would have raised."""
    try:
        yield
    except core.CoreError as error:
        if error.code in _LOST_JOB:
            raise HorovodInternalError(str(error)) from None
        kind = _ERRORS.get(error.code, tf.errors.InternalError)
        raise kind(None, None, str(error)) from None


@contextlib.contextmanager
def _awaited(
    op_type: str, names: Sequence[str], process_set: ProcessSet, who: str
) -> Iterator[None]:
    """As `_raw.awaited`, for all collectives that the others have in flight at once."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(_raw.awaited(op_type, name, process_set, who, eagerly=True))
        yield


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Gives every rank the root's object.

    Example:
      >>> hvd.broadcast_object({"epoch": 3} if hvd.rank() == 0 else None)  # on every rank
      {'epoch': 3}

    Args:
      obj: anything that cloudpickle can pickle, of any size; looked at on the root only.
      root_rank: whose; in [0, size).
      session: accepted for old programs; no session is needed.
      name: the same on all ranks; needed only where several such calls are made at once, from
        several threads.
      process_set: the ranks that take part.

    Returns:
      The object; on the root `obj` itself, a copy elsewhere.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.InvalidArgumentError: this rank or the root is not in the set.
      tf.errors.FailedPreconditionError: the ranks disagree about the root.
      HorovodInternalError: a rank was lost or has left.
    """
    _raw.require_init("broadcast_object")
    number = _raw.id_of(process_set, "broadcast_object")
    name = name or "broadcast_object"
    with _awaited("HorovodBroadcast", [f"{name}.size"], process_set, "broadcast_object"):
        is_root = basics.rank() == operator.index(root_rank)
        data = cloudpickle.dumps(obj) if is_root else b""
    with _as_op_errors():
        received = byte_exchange.broadcast_bytes(data, root_rank, name, number)
        return obj if is_root else cloudpickle.loads(received)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """Returns a function that gives every rank the root's object, as `broadcast_object` does.

    Example:
      >>> of_rank_0 = hvd.broadcast_object_fn(root_rank=0)
      >>> of_rank_0(f"seed {hvd.rank()}")  # on every rank
      'seed 0'

    Args:
      root_rank: whose; in [0, size).
      session: accepted for old programs; no session is needed.
      name: as for `broadcast_object`.
      process_set: the ranks that take part.

    Returns:
      A function of the object, which returns the root's and raises what `broadcast_object` does.
    """
    return lambda obj: broadcast_object(obj, root_rank, session, name, process_set)


def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Gives every rank all ranks' objects.

    Example:
      >>> hvd.allgather_object(f"rank {hvd.rank()}")  # 2 ranks: ['rank 0', 'rank 1']
      ['rank 0']

    Args:
      obj: anything that cloudpickle can pickle, of any size.
      session: accepted for old programs; no session is needed.
      name: as for `broadcast_object`.
      process_set: the ranks that take part.

    Returns:
      A list of the objects, in rank order; copies, this rank's own too.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.InvalidArgumentError: this rank is not in the set.
      HorovodInternalError: a rank was lost or has left.
    """
    _raw.require_init("allgather_object")
    number = _raw.id_of(process_set, "allgather_object")
    name = name or "allgather_object"
    both = [f"{name}.sizes", f"{name}.data"]
    with _awaited("HorovodAllgather", both, process_set, "allgather_object"):
        data = cloudpickle.dumps(obj)
    with _as_op_errors():
        parts = byte_exchange.allgather_bytes(data, name, number)
        return [cloudpickle.loads(part) for part in parts]
