"""The gradients of the collectives.

Every rank's loss counts equally: a gradient is that of the sum of all ranks' losses, times a number
that is fixed for each collective (docs/ops.md).  So the gradient of a collective is a collective,
and all ranks must ask for it.

Importing this module registers them, by op type: they work on graphs that were loaded, too.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from horovod.common.reduce_ops import Average, Sum
from horovod.tensorflow import _raw

__all__: list[str] = []


def _name(op: tf.Operation, suffix: str) -> str | None:
    """Returns the name of a backward op; None in a graph, where TensorFlow makes one."""
    forward = tf.compat.as_str(op.get_attr("tensor_name"))
    return f"{forward}_{suffix}" if forward else None


def _average(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    return _raw.call(
        "HorovodAllreduce",
        tf.convert_to_tensor(gradient),
        name=_name(op, "grad"),
        reduce_op=int(Average),
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set_id=op.get_attr("process_set_id"),
    )


def _allreduce(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The same allreduce, of the gradient."""
    return _raw.call(
        "HorovodAllreduce",
        tf.convert_to_tensor(gradient),
        name=_name(op, "grad"),
        reduce_op=op.get_attr("reduce_op"),
        prescale_factor=op.get_attr("prescale_factor"),
        postscale_factor=op.get_attr("postscale_factor"),
        process_set_id=op.get_attr("process_set_id"),
        wire_dtype=tf.compat.as_str(op.get_attr("wire_dtype")),
    )


def _grouped_allreduce(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    """The same grouped allreduce, of the gradients."""
    return list(
        _raw.call(
            "HorovodGroupedAllreduce",
            [tf.convert_to_tensor(gradient) for gradient in gradients],
            name=_name(op, "grad"),
            reduce_op=op.get_attr("reduce_op"),
            prescale_factor=op.get_attr("prescale_factor"),
            postscale_factor=op.get_attr("postscale_factor"),
            process_set_id=op.get_attr("process_set_id"),
            wire_dtype=tf.compat.as_str(op.get_attr("wire_dtype")),
        )
    )


def _allgather(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The average over the ranks, of which this rank takes the rows that it had sent."""
    return _own_rows(op, [_average(op, gradient)])[0]


def _grouped_allgather(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    """As of an allgather, for each tensor."""
    averages = _raw.call(
        "HorovodGroupedAllreduce",
        [tf.convert_to_tensor(gradient) for gradient in gradients],
        name=_name(op, "grad"),
        reduce_op=int(Average),
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set_id=op.get_attr("process_set_id"),
    )
    return _own_rows(op, averages)


def _own_rows(op: tf.Operation, gathered: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Of tensors like those that an allgather gave, the rows that this rank had sent.

    Where those rows are is known when it runs: each rank tells the others its number and how many
    rows it has.
    """
    rank = tf.cast(_raw.function_of("HorovodRank")(), tf.int64)
    rows = [tf.shape(tensor, out_type=tf.int64)[0] for tensor in op.inputs]
    table = _raw.call(  # one row [rank, rows...] of each rank, in the order of the process set
        "HorovodAllgather",
        tf.stack([[rank, *rows]]),
        name=_name(op, "rows"),
        process_set_id=op.get_attr("process_set_id"),
    )
    place = tf.argmax(tf.cast(tf.equal(table[:, 0], rank), tf.int32))
    begins = tf.reduce_sum(table[:place, 1:], axis=0)
    return [
        tf.ensure_shape(tensor[begins[i] : begins[i] + rows[i]], op.inputs[i].shape)
        for i, tensor in enumerate(gathered)
    ]


def _alltoall(op: tf.Operation, gradient: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, None]:
    """The rows of the gradient go back to where those of the tensor came from."""
    back, _ = _raw.call(
        "HorovodAlltoall",
        tf.convert_to_tensor(gradient),
        op.outputs[1],
        name=_name(op, "grad"),
        process_set_id=op.get_attr("process_set_id"),
    )
    return tf.ensure_shape(back, op.inputs[0].shape), None


def _reducescatter_factor(op: tf.Operation) -> float | tf.Tensor:
    factor = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    if op.get_attr("reduce_op") != int(Sum):
        return factor
    size = _raw.function_of("HorovodSize")(process_set_id=op.get_attr("process_set_id"))
    return factor * tf.cast(size, tf.float64)


def _reducescatter(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The allgather of the gradients, times the factors and, for Sum, the size."""
    gathered = _raw.call(
        "HorovodAllgather",
        tf.convert_to_tensor(gradient),
        name=_name(op, "grad"),
        process_set_id=op.get_attr("process_set_id"),
    )
    scaled = gathered * tf.cast(_reducescatter_factor(op), gathered.dtype)
    return tf.ensure_shape(scaled, op.inputs[0].shape)


def _grouped_reducescatter(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    """As of a reducescatter, for each tensor."""
    gathered = _raw.call(
        "HorovodGroupedAllgather",
        [tf.convert_to_tensor(gradient) for gradient in gradients],
        name=_name(op, "grad"),
        process_set_id=op.get_attr("process_set_id"),
    )
    factor = _reducescatter_factor(op)
    return [
        tf.ensure_shape(tensor * tf.cast(factor, tensor.dtype), like.shape)
        for tensor, like in zip(gathered, op.inputs)
    ]


def _broadcast(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The average over the ranks on the root; zeros on the others, whose tensor went nowhere."""
    average = _average(op, gradient)
    is_root = tf.equal(_raw.function_of("HorovodRank")(), op.get_attr("root_rank"))
    return tf.where(is_root, average, tf.zeros_like(average))


# Called rather than written as decorators, which would hide the functions' types.
tf.RegisterGradient("HorovodAllgather")(_allgather)
tf.RegisterGradient("HorovodAllreduce")(_allreduce)
tf.RegisterGradient("HorovodAlltoall")(_alltoall)
tf.RegisterGradient("HorovodBroadcast")(_broadcast)
tf.RegisterGradient("HorovodGroupedAllgather")(_grouped_allgather)
tf.RegisterGradient("HorovodGroupedAllreduce")(_grouped_allreduce)
tf.RegisterGradient("HorovodGroupedReducescatter")(_grouped_reducescatter)
tf.RegisterGradient("HorovodReducescatter")(_reducescatter)
for _op_type in (
    "HorovodBarrier",
    "HorovodJoin",
    "HorovodLocalRank",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
    "HorovodRank",
    "HorovodSize",
):
    tf.no_gradient(_op_type)
