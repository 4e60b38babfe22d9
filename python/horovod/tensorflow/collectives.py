"""Collectives on tensors: one op call per function; the core decides the rest.

All ranks of a process set make the same calls, in any order.  A call becomes a node in a graph or
a `tf.function`; in eager code it returns when all ranks have answered.

What goes wrong comes as the same classes of error everywhere:
  FailedPreconditionError   ranks disagree, or one of them failed; the text names them
  InvalidArgumentError      this rank's own arguments are wrong, or a name is in flight twice
  UnknownError              a rank was lost or left: in sessions and functions
  HorovodInternalError      the same, from a call in eager code
(the first three of `tf.errors`; the last of `horovod.common.exceptions`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import ReduceOp
from horovod.tensorflow import _raw
from horovod.tensorflow.averaging import handle_average_backwards_compatibility
from horovod.tensorflow.compression import Compression, Compressor, in_op, require_compression
from horovod.tensorflow.gradient_pairs import are_pairs, names_of_pairs
from horovod.tensorflow.sparse import SlicesReduction, first_awaited_of_slices

__all__ = [
    "allgather",
    "allreduce",
    "barrier",
    "broadcast",
    "combine",
    "combine_without_factors_of_slices",
    "dense",
    "first_awaited",
    "join",
    "on_device",
    "refuse_factors_of_slices",
]


def on_device(device: str) -> contextlib.AbstractContextManager[Any]:
    """Returns a context that places ops on `device`; '' leaves the placement as it is."""
    return tf.device(device) if device else contextlib.nullcontext()


def dense(tensor: Any, who: str) -> tf.Tensor:
    """Makes a tensor of an argument.

    Raises:
      NotImplementedError: it is `tf.IndexedSlices`.
    """
    if isinstance(tensor, tf.IndexedSlices):
        raise NotImplementedError(
            f"{who} of IndexedSlices: only dense tensors have rows that all ranks agree on; pass "
            "tf.convert_to_tensor(slices)"
        )
    return tf.convert_to_tensor(tensor)


def first_awaited(tensor: Any, name: str | None) -> tuple[str, str | None]:
    """Returns type and name of the op that the others wait for first when ranks `combine`."""
    if isinstance(tensor, tf.IndexedSlices):
        return first_awaited_of_slices(tensor, name)
    return "HorovodAllreduce", name or _raw.default_name("HorovodAllreduce", tensor)


def combine(
    tensor: Any,
    op: ReduceOp,
    *,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
    gradient: bool = False,
) -> tf.Tensor | tf.IndexedSlices:
    """Combines a tensor, or the slices of one, over the ranks; see `allreduce`.

    Args:
      tensor: a tensor or `tf.IndexedSlices`.
      op: how.
      name: as for `allreduce`, as are all but the last.
      device_dense: for a dense tensor.
      device_sparse: for slices.
      compression: for the wire.
      prescale_factor: before the reduction.
      postscale_factor: after it.
      ignore_name_scope: for the name.
      process_set: the ranks that take part.
      gradient: whether this is a gradient of a compat.v1 optimizer.  Those end with
        `tf.errors.OutOfRangeError` when another rank has finished its training in order, which
        ends this rank's training loop as well.

    Returns:
      What `allreduce` returns.

    Raises:
      ValueError: `compression` is no compression, or `op` no reduction.
      NotImplementedError: slices with what only dense tensors can have.
    """
    first = first_awaited(tensor, name)
    if isinstance(tensor, tf.IndexedSlices):
        with contextlib.ExitStack() as stack:
            with _raw.awaited(*first, process_set, "allreduce of IndexedSlices"):
                stack.enter_context(on_device(device_sparse))
                reduction = SlicesReduction(
                    op=ReduceOp(op),
                    name=name,
                    compression=compression,
                    prescale_factor=float(prescale_factor),
                    postscale_factor=float(postscale_factor),
                    ignore_name_scope=ignore_name_scope,
                    process_set=process_set,
                    gradient=gradient,
                )
            return reduction.reduce(tensor)
    with _raw.awaited(*first, process_set, "allreduce") as call, on_device(device_dense):
        require_compression("allreduce", compression)
        tensor = tf.convert_to_tensor(tensor)
        compression, wire = in_op(compression, tensor.dtype, ReduceOp(op))
        compressed, context = compression.compress(tensor)
        reduced = call(
            compressed,
            reduce_op=int(op),
            prescale_factor=float(prescale_factor),
            postscale_factor=float(postscale_factor),
            ignore_name_scope=ignore_name_scope,
            gradient=gradient,
            **wire,
        )
        return compression.decompress(reduced, context)


def refuse_factors_of_slices(
    who: str, tensor: Any, name: str | None, prescale_factor: float, postscale_factor: float
) -> None:
    """Raises NotImplementedError where slices have factors, as programs expect.

    Args:
      who: begins the error's text.
      tensor: a tensor or `tf.IndexedSlices`.
      name: of the reduction, as are the others.
      prescale_factor: before it.
      postscale_factor: after it.
    """
    factors = prescale_factor, postscale_factor
    if isinstance(tensor, tf.IndexedSlices) and factors != (1.0, 1.0):
        raise NotImplementedError(
            f"{who} of IndexedSlices {name!r}: prescale_factor={factors[0]} and "
            f"postscale_factor={factors[1]} are for dense tensors; multiply the slices' values, or "
            "pass tf.convert_to_tensor(slices)"
        )


def combine_without_factors_of_slices(
    tensor: Any,
    op: ReduceOp,
    *,
    name: str | None,
    prescale_factor: float,
    postscale_factor: float,
    **options: Any,
) -> Any:
    """As `combine`, but slices with factors are a NotImplementedError."""
    with _telling(tensor, name, options["process_set"]):
        refuse_factors_of_slices("allreduce", tensor, name, prescale_factor, postscale_factor)
    return combine(
        tensor,
        op,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        **options,
    )


@contextlib.contextmanager
def _telling(tensor: Any, name: str | None, process_set: ProcessSet) -> Iterator[None]:
    """Tells the others, who wait for `allreduce` of a tensor or pairs, what goes wrong before."""
    try:
        yield
    except Exception:
        if are_pairs(tensor):
            named = zip(tensor, names_of_pairs(tensor, name))
            gradients = [(pair[0], its_name) for pair, its_name in named if pair[0] is not None]
            if not gradients:
                raise  # nobody waits for anything
            tensor, name = gradients[0]
        with _raw.awaited(*first_awaited(tensor, name), process_set, "allreduce"):
            raise


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Combines `tensor` over all ranks, element by element.

    Its gradient is the same allreduce of the gradient.

    Example:
      >>> x = tf.constant([1.0, 2.0])
      >>> hvd.allreduce(x, op=hvd.Sum, name="x").numpy()  # 2 ranks: [2., 4.]
      array([1., 2.], dtype=float32)

    Args:
      tensor: a tensor, variable, array, number or list of any shape, the same on all ranks; bool,
        uint8, int8, uint16, int16, int32, int64, float16, bfloat16, float32 or float64.  Or
        `tf.IndexedSlices`, whose numbers of rows may differ: each rank's rows of one index are
        added and all ranks' gathered, or HOROVOD_SPARSE_AUTO_DENSE chooses; see docs/ops.md.  Or
        a list or zip of (gradient, variable) pairs, as `compute_gradients` returns them.
      average: deprecated: True is op=Average, False is op=Sum.
      device_dense: where to place the op for a dense tensor; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of the tensor for the wire, such as `Compression.fp16`.
      op: Average (the default), Sum, Min, Max, Product or Adasum.  For bool Sum is "or" and Product
        is "and"; Average is an error.  The average of integers is rounded toward zero.  Adasum
        (Maleki et al., arXiv:2006.02924) adds what is orthogonal and averages what is parallel, so
        that the learning rate need not follow the number of ranks; for floating types and 1, 2, 4,
        8 ... ranks.
      prescale_factor: multiplies each rank's tensor before the reduction.
      postscale_factor: multiplies the result; for Average, on top of 1 / size.
      name: the same on all ranks, and in flight once at a time.  Default: the tensor's name,
        which eager tensors do not have.
      process_set: the ranks that take part.
      ignore_name_scope: whether to leave the name scope out of the name.

    Returns:
      A tensor of the same shape and dtype; for `tf.IndexedSlices`, `tf.IndexedSlices` of which
      the values of one index are still to be added.  For pairs, a list of pairs, for
      `apply_gradients`: the combined gradients, None where it was None, and the variables as they
      are.

    Raises:
      ValueError: `init()` was not called; both `average` and `op` are given; or `compression` is
        no compression.
      tf.errors.FailedPreconditionError: the ranks' shapes, dtypes, ops or factors differ.
      tf.errors.InvalidArgumentError: the op is none for this dtype, such as Average for bool.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices` with an op other than Average and Sum, or with
        factors; or an average of bools in them.
    """
    with _telling(tensor, name, process_set):
        op = handle_average_backwards_compatibility(op, average)
    combined = functools.partial(
        combine_without_factors_of_slices,
        op=op,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
    if isinstance(tensor, zip):
        tensor = list(tensor)
    if not are_pairs(tensor):
        return combined(tensor, name=name)
    return [
        (None if gradient is None else combined(gradient, name=its_name), variable)
        for (gradient, variable), its_name in zip(tensor, names_of_pairs(tensor, name))
    ]


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Joins every rank's rows, in rank order.

    Its gradient is the average of the gradient over the ranks, of which each takes its own rows.

    Example:
      >>> rows = [[hvd.rank(), 7]] * (hvd.rank() + 1)
      >>> hvd.allgather(rows, name="rows").numpy().tolist()  # 2 ranks: [[0, 7], [1, 7], [1, 7]]
      [[0, 7]]

    Args:
      tensor: shape [rows, ...]; the rows may differ by rank and be none, the rest may not differ.
        The dtypes of `allreduce`.
      name: the same on all ranks; see `allreduce`.
      ignore_name_scope: whether to leave the name scope out of the name.
      process_set: the ranks that take part.

    Returns:
      A tensor of shape [sum of rows, ...] and the same dtype.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the ranks' dtypes, or dimensions but the first, differ.
      tf.errors.InvalidArgumentError: the tensor is a scalar, which has no rows.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices`.
    """
    name = name or _raw.default_name("HorovodAllgather", tensor)
    with _raw.awaited("HorovodAllgather", name, process_set, "allgather") as call:
        return call(dense(tensor, "allgather"), ignore_name_scope=ignore_name_scope)


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor:
    """Gives every rank the root's tensor.

    Its gradient is the average of the gradient over the ranks on the root, and zeros elsewhere.

    Example:
      >>> x = tf.fill([2], hvd.rank() + 0.5)
      >>> hvd.broadcast(x, root_rank=0, name="x").numpy()  # on every rank
      array([0.5, 0.5], dtype=float32)

    Args:
      tensor: of any shape, the same on all ranks.  The dtypes of `allreduce`.
      root_rank: whose tensor; in [0, size).
      name: the same on all ranks; see `allreduce`.
      ignore_name_scope: whether to leave the name scope out of the name.
      process_set: the ranks that take part.

    Returns:
      A tensor of the same shape and dtype.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the ranks' shapes, dtypes or roots differ.
      tf.errors.InvalidArgumentError: the root is no rank of the set, or no whole number.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices`.
    """
    name = name or _raw.default_name("HorovodBroadcast", tensor)
    with _raw.awaited("HorovodBroadcast", name, process_set, "broadcast") as call:
        return call(
            dense(tensor, "broadcast"), root_rank=root_rank, ignore_name_scope=ignore_name_scope
        )


def barrier(process_set: ProcessSet = global_process_set) -> tf.Operation | None:
    """Waits until every rank is here.

    Example:
      >>> hvd.barrier()
      >>> print("all ranks have come")
      all ranks have come

    Args:
      process_set: the ranks to wait for.

    Returns:
      None in eager code, when all are here.  In a graph, the operation to run.  A `tf.function`
      runs it in program order among printing, Python functions and other barriers; reads and
      writes of variables, and collectives, are ordered against it only by control dependencies.

    Raises:
      ValueError: `init()` was not called.
      HorovodInternalError: in eager code, a rank was lost or has left.
    """
    return _raw.call("HorovodBarrier", process_set_id=_raw.id_of(process_set, "barrier"))


def join() -> tf.Tensor:
    """Says that this rank has no more data, and waits until all ranks have said so.

    Meanwhile the other ranks' collectives go on without this one: a reduction skips it, an
    allgather and an alltoall get no rows of it.  An average still divides by the number of all
    ranks, unless HOROVOD_JOIN_AVERAGE is "contributing".  A broadcast from a rank that has joined
    and a collective of a smaller process set with such a rank are errors.

    Example:
      >>> for batch in range(hvd.rank() + 2):  # each rank has one more than the one before
      ...     mean = hvd.allreduce(1.0, name="loss")
      >>> int(hvd.join())  # 2 ranks: 1
      0

    Returns:
      int32 of shape []: the rank that joined last.

    Raises:
      ValueError: `init()` was not called.
      HorovodInternalError: in eager code, a rank was lost or has left.
    """
    return _raw.call("HorovodJoin")
