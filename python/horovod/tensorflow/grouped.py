"""Collectives on a group of tensors: all of it runs, or nothing does.

The tensors of a group wait for each other on every rank, then travel together.  The errors are
those of `horovod.tensorflow.collectives`; one that is wrong fails the whole group.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from horovod.common import core
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow import _raw
from horovod.tensorflow.averaging import handle_average_backwards_compatibility
from horovod.tensorflow.collectives import (
    combine,
    dense,
    first_awaited,
    on_device,
    refuse_factors_of_slices,
)
from horovod.tensorflow.compression import Compression, Compressor, in_op, require_compression

__all__ = ["combine_group", "grouped_allgather", "grouped_allreduce", "grouped_reducescatter"]


def _dtype(tensor: Any) -> tf.DType | None:
    """Returns the dtype of something, or what it looks like where no tensor can be made of it."""
    for thing in (tensor, *tf.nest.flatten(tensor)[:1]):
        with contextlib.suppress(Exception):
            return tf.convert_to_tensor(thing).dtype
    return None


def _wire_names(
    op_type: str, tensors: Sequence[Any], dtypes: Sequence[tf.DType], name: str | None
) -> dict[tf.DType, str | None]:
    """Returns the name of each dtype's call, in the order of the calls; None for no name.

    The first dtype's call has the group's own name, whatever else is in the group, so that ranks
    whose groups differ find each other there.
    """
    names: dict[tf.DType, str | None] = {}
    base = None
    for tensor, dtype in zip(tensors, dtypes):
        if not names:
            base = names[dtype] = name or _raw.default_name(op_type, tensor)
        else:
            names.setdefault(dtype, f"{base}_{dtype.name}" if base else None)
    return names


@contextlib.contextmanager
def _telling(
    op_type: str, tensors: Any, name: str | None, process_set: ProcessSet, who: str
) -> Iterator[None]:
    """Tells the others, who wait for a group's first call, what goes wrong before it is made."""
    try:
        yield
    except Exception:
        first: tuple[str, str | None] = op_type, name
        if isinstance(tensors, Sequence):
            if not tensors:
                raise  # nobody waits for anything
            slices = [i for i, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
            if slices and op_type == "HorovodGroupedAllreduce":
                first = first_awaited(tensors[slices[0]], _name_of_slices(name, slices[0]))
            else:
                known = [(t, dtype) for t in tensors if (dtype := _dtype(t)) is not None]
                names = _wire_names(op_type, [t for t, _ in known], [d for _, d in known], name)
                first = op_type, next(iter(names.values()), name)
        with _raw.awaited(*first, process_set, who):
            raise


def _name_of_slices(name: str | None, place: int) -> str | None:
    return f"{name}_{place}" if name else None


def _call(
    op_type: str,
    who: str,
    tensors: Sequence[tf.Tensor],
    name: str | None,
    process_set: ProcessSet,
    compression: type[Compressor] = Compression.none,
    **attrs: Any,
) -> list[tf.Tensor]:
    """Calls a raw op, which takes one dtype, once for each.

    Args:
      op_type: of the raw op.
      who: begins an error's text.
      tensors: of any dtypes.
      name: of the group.
      process_set: the ranks that take part.
      compression: for the wire.
      **attrs: the op's further attributes.

    Returns:
      The results, in the order of the tensors.
    """
    places: dict[tf.DType, list[int]] = {}
    for place, tensor in enumerate(tensors):
        places.setdefault(tensor.dtype, []).append(place)
    several = len(places) > 1
    names = _wire_names(op_type, tensors, [tensor.dtype for tensor in tensors], name)
    results: dict[int, tuple[Any, Any, Any]] = {}
    for dtype, mine in places.items():
        waits = tf.control_dependencies(tensors if several else [])
        with _raw.awaited(op_type, names[dtype], process_set, who) as call, waits:
            require_compression(who, compression)
            _require_dtypes(who, name, places)
            around = compression
            wire: dict[str, str] = {}
            if op_type == "HorovodGroupedAllreduce":
                around, wire = in_op(compression, dtype, attrs["reduce_op"])
            group, contexts = zip(*(around.compress(tensors[place]) for place in mine))
            others = len(tensors) - len(mine)
            outputs = call(list(group), num_others=others, **attrs, **wire)
        for place, output, context in zip(mine, outputs, contexts):
            results[place] = around, output, context
    # After all calls, so that none is left out where this fails, nor where a program fetches one.
    ordered = [results[place] for place in range(len(tensors))]
    with tf.control_dependencies([output for _, output, _ in ordered] if several else []):
        return [
            around.decompress(tf.identity(output) if several else output, context)
            for around, output, context in ordered
        ]


def _require_dtypes(who: str, name: str | None, dtypes: Iterable[tf.DType]) -> None:
    """Raises InvalidArgumentError for a dtype that no collective takes, before any has run."""
    for dtype in dtypes:
        if dtype.base_dtype.name not in core.DTYPES:
            text = (
                f"{who} {name!r}: a tensor is of dtype {dtype.name}, which collectives do not take"
            )
            raise tf.errors.InvalidArgumentError(None, None, f"{text}; leave it out of the group")


def combine_group(
    tensors: Sequence[Any],
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
) -> list[Any]:
    """Combines the tensors of a group over the ranks; see `grouped_allreduce`.

    Args:
      tensors: tensors, or `tf.IndexedSlices`.
      op: how.
      name: as for `grouped_allreduce`, as are all but the last.
      device_dense: for dense tensors.
      device_sparse: for slices.
      compression: for the wire.
      prescale_factor: before the reduction.
      postscale_factor: after it.
      ignore_name_scope: for the name.
      process_set: the ranks that take part.
      gradient: as for `collectives.combine`.

    Returns:
      What `grouped_allreduce` returns.
    """
    results: dict[int, Any] = {}
    places: list[int] = []
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, tf.IndexedSlices):
            places.append(place)
            continue
        results[place] = combine(
            tensor,
            op,
            name=_name_of_slices(name, place),
            device_sparse=device_sparse,
            compression=compression,
            prescale_factor=prescale_factor,
            postscale_factor=postscale_factor,
            ignore_name_scope=ignore_name_scope,
            process_set=process_set,
            gradient=gradient,
        )
    who, op_type = "grouped_allreduce", "HorovodGroupedAllreduce"
    given = [tensors[place] for place in places]
    with contextlib.ExitStack() as stack:
        with _telling(op_type, given, name, process_set, who):
            stack.enter_context(on_device(device_dense))
            made = [tf.convert_to_tensor(tensor) for tensor in given]
            factors = {
                "prescale_factor": float(prescale_factor),
                "postscale_factor": float(postscale_factor),
            }
        outputs = _call(
            op_type,
            who,
            made,
            name,
            process_set,
            compression,
            reduce_op=int(op),
            ignore_name_scope=ignore_name_scope,
            gradient=gradient,
            **factors,
        )
    results.update(zip(places, outputs))
    return [results[place] for place in range(len(tensors))]


def grouped_allreduce(
    tensors: Iterable[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Combines each of some tensors over all ranks, as `allreduce` does; all of them or none.

    Its gradient is the same grouped allreduce of the gradients.

    Example:
      >>> ones, three = hvd.grouped_allreduce([tf.ones([2]), 3], op=hvd.Sum, name="g")
      >>> ones.numpy(), int(three)  # 2 ranks: [2., 2.] and 6
      (array([1., 1.], dtype=float32), 3)

    Args:
      tensors: any iterable of tensors, variables, arrays or numbers of any shapes, as many and of
        the same shapes on all ranks; the dtypes of `allreduce`.  Those of one dtype travel
        together; in eager code those of another follow them.  `tf.IndexedSlices` among them are
        combined each by itself.
      average: deprecated: True is op=Average, False is op=Sum.
      device_dense: where to place the ops for dense tensors; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of the tensors for the wire, such as `Compression.fp16`.
      op: as for `allreduce`.
      prescale_factor: multiplies each rank's tensors before the reduction.
      postscale_factor: multiplies the results; for Average, on top of 1 / size.
      process_set: the ranks that take part.
      ignore_name_scope: whether to leave the name scope out of the name.
      name: of the group; the same on all ranks, and in flight once at a time.  Default: made of
        the first tensor's name, which eager tensors do not have.

    Returns:
      A list of tensors of the same shapes and dtypes, in order; empty for no tensors.

    Raises:
      ValueError: `init()` was not called; both `average` and `op` are given; or `compression` is
        no compression.
      tf.errors.FailedPreconditionError: the ranks' numbers of tensors, shapes, dtypes, ops or
        factors differ.
      tf.errors.InvalidArgumentError: the op is none for a dtype, such as Average for bool.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: what `allreduce` cannot do with `tf.IndexedSlices`, such as factors.
    """
    who = "grouped_allreduce"
    _raw.require_init(who)
    with _telling("HorovodGroupedAllreduce", tensors, name, process_set, who):
        listed = list(tensors)
        for tensor in listed:
            refuse_factors_of_slices(who, tensor, name, prescale_factor, postscale_factor)
        op = handle_average_backwards_compatibility(op, average)
    return combine_group(
        listed,
        op,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )


def grouped_allgather(
    tensors: Iterable[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[tf.Tensor]:
    """Joins every rank's rows of each of some tensors, as `allgather` does; all of them or none.

    Its gradients are those of `allgather`.

    Example:
      >>> rows, more = hvd.grouped_allgather([tf.ones([1, 3]), tf.ones([2])], name="g")
      >>> rows.shape, more.shape  # 2 ranks: [2, 3] and [4]
      (TensorShape([1, 3]), TensorShape([2]))

    Args:
      tensors: each of shape [rows, ...], as many on all ranks; the rows may differ by rank and be
        none, the rest may not differ.  The dtypes of `allreduce`; see `grouped_allreduce`.
      name: of the group; see `grouped_allreduce`.
      ignore_name_scope: whether to leave the name scope out of the name.
      process_set: the ranks that take part.

    Returns:
      A list of tensors of shapes [sum of rows, ...] and the same dtypes, in order.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the ranks' numbers of tensors, dtypes, or dimensions but
        the first, differ.
      tf.errors.InvalidArgumentError: a tensor is a scalar, which has no rows.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices`.
    """
    who, op_type = "grouped_allgather", "HorovodGroupedAllgather"
    _raw.require_init(who)
    with _telling(op_type, tensors, name, process_set, who):
        made = [dense(tensor, who) for tensor in tensors]
    return _call(op_type, who, made, name, process_set, ignore_name_scope=ignore_name_scope)


def grouped_reducescatter(
    tensors: Iterable[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    *,
    name: str | None = None,
) -> list[tf.Tensor]:
    """Combines each of some tensors and divides the rows, as `reducescatter`; all or none.

    Its gradients are those of `reducescatter`.

    Example:
      >>> rows, more = hvd.grouped_reducescatter([tf.ones([4, 2]), tf.ones([3])], name="g")
      >>> rows.shape, more.shape  # 2 ranks: [2, 2] on both, [2] and [1]
      (TensorShape([4, 2]), TensorShape([3]))

    Args:
      tensors: each of shape [rows, ...], as many and of the same shapes on all ranks.  The dtypes
        of `allreduce`; see `grouped_allreduce`.
      device_dense: where to place the ops; default: as TensorFlow decides.
      compression: what to make of the tensors for the wire, such as `Compression.fp16`.
      op: as for `allreduce`, but Adasum.
      process_set: the ranks that take part.
      prescale_factor: multiplies each rank's tensors before the reduction.
      postscale_factor: multiplies the results; for Average, on top of 1 / size.
      name: of the group; see `grouped_allreduce`.

    Returns:
      A list of this rank's rows of each; see `reducescatter`.

    Raises:
      ValueError: `init()` was not called.
      tf.errors.FailedPreconditionError: the ranks' numbers of tensors, shapes, dtypes, ops or
        factors differ.
      tf.errors.InvalidArgumentError: a tensor is a scalar, which has no rows; or the op is none for
        a dtype, such as Average for bool.
      HorovodInternalError: in eager code, a rank was lost or has left.
      NotImplementedError: `tf.IndexedSlices`.
    """
    who, op_type = "grouped_reducescatter", "HorovodGroupedReducescatter"
    _raw.require_init(who)
    with contextlib.ExitStack() as stack:
        with _telling(op_type, tensors, name, process_set, who):
            stack.enter_context(on_device(device_dense))
            made = [dense(tensor, who) for tensor in tensors]
            attrs = {
                "reduce_op": int(ReduceOp(op)),
                "prescale_factor": float(prescale_factor),
                "postscale_factor": float(postscale_factor),
            }
        return _call(op_type, who, made, name, process_set, compression, **attrs)
