"""Collectives after which ranks hold different rows: alltoall and reducescatter."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow import _raw
from horovod.tensorflow.collectives import dense, on_device
from horovod.tensorflow.compression import Compression, Compressor, require_compression

__all__ = ["alltoall", "reducescatter"]


def _is_empty(splits: Any) -> bool:
    """Returns whether there are no numbers in it; of what a graph makes later, that is unknown."""
    if hasattr(splits, "shape"):
        return tf.TensorShape(splits.shape).num_elements() == 0
    return hasattr(splits, "__len__") and len(splits) == 0


def _require_splits(name: str | None, process_set: ProcessSet, splits: Any) -> None:
    """Raises InvalidArgumentError where splits are given and empty: the op takes them for none."""
    if splits is None or not _is_empty(splits):
        return
    raise tf.errors.InvalidArgumentError(
        None,
        None,
        f"alltoall '{name or 'HorovodAlltoall'}': splits are 0 numbers; give one for each rank of "
        f"process set {_raw.id_of(process_set, 'alltoall')}, or leave splits out to send as many "
        "rows to each",
    )


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends some rows to each rank, and receives those that each rank has for this one.

    Its gradient is the alltoall that sends the gradient's rows back.

    Example:
      >>> splits = [2] + [1] * (hvd.size() - 1)  # two rows for rank 0, one for each other
      >>> rows, received = hvd.alltoall(tf.range(sum(splits)), splits=splits, name="a")
      >>> rows.numpy(), received.numpy()  # 2 ranks: [0 1 0 1] and [2 2]; [2 2] and [1 1]
      (array([0, 1], dtype=int32), array([2], dtype=int32))

    Args:
      tensor: shape [rows, ...]; the rows may differ by rank and be none, the rest may not differ.
        The dtypes of `allreduce`.
      splits: int32 of shape [size], or a list: how many rows go to each rank, in order.  They add
        up to the rows, and may be 0.  Default: as many to each, which must be possible.
      name: the same on all ranks; see `allreduce`.
      ignore_name_scope: whether to leave the name scope out of the name.
      process_set: the ranks that take part.

    Returns:
      Without splits, a tensor of shape [received rows, ...] and the same dtype, in rank order.
      With splits, a pair: that tensor, and int32 of shape [size]: the rows from each rank.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the ranks' dtypes, or dimensions but the first, differ.
      tf.errors.InvalidArgumentError: the splits are not one number of rows for each rank that add
        up to the tensor's; or the tensor is a scalar.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices`.
    """
    given = splits is not None
    name = name or _raw.default_name("HorovodAlltoall", tensor)
    with _raw.awaited("HorovodAlltoall", name, process_set, "alltoall") as call:
        _require_splits(name, process_set, splits)
        output, received_splits = call(
            dense(tensor, "alltoall"),
            splits if given else tf.constant([], tf.int32),
            ignore_name_scope=ignore_name_scope,
        )
    return (output, received_splits) if given else output


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> tf.Tensor:
    """Combines a tensor over all ranks, and gives each of them some of its rows.

    Rank r gets the r-th part of the rows; where they cannot be divided evenly, the first ranks get
    one more.  Its gradient is the allgather of the gradients, times the factors and, for Sum, the
    size.

    Example:
      >>> x = tf.range(3.0)
      >>> hvd.reducescatter(x, op=hvd.Sum, name="x").numpy()  # 2 ranks: [0., 2.] and [4.]
      array([0., 1., 2.], dtype=float32)

    Args:
      tensor: shape [rows, ...], the same on all ranks.  The dtypes of `allreduce`.
      device_dense: where to place the op; default: as TensorFlow decides.
      compression: what to make of the tensor for the wire, such as `Compression.fp16`.
      op: as for `allreduce`, but Adasum.
      name: the same on all ranks; see `allreduce`.
      process_set: the ranks that take part.
      ignore_name_scope: whether to leave the name scope out of the name.
      prescale_factor: multiplies each rank's tensor before the reduction.
      postscale_factor: multiplies the result; for Average, on top of 1 / size.

    Returns:
      A tensor of shape [this rank's rows, ...] and the same dtype.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the ranks' shapes, dtypes, ops or factors differ.
      tf.errors.InvalidArgumentError: the tensor is a scalar, which has no rows; or the op is none
        for this dtype, such as Average for bool.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices`.
    """
    who, op_type = "reducescatter", "HorovodReducescatter"
    name = name or _raw.default_name(op_type, tensor)
    with _raw.awaited(op_type, name, process_set, who) as call, on_device(device_dense):
        require_compression(who, compression)
        compressed, context = compression.compress(dense(tensor, who))
        output = call(
            compressed,
            reduce_op=int(ReduceOp(op)),
            prescale_factor=float(prescale_factor),
            postscale_factor=float(postscale_factor),
            ignore_name_scope=ignore_name_scope,
        )
        return compression.decompress(output, context)
