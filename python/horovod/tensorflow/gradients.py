"""The gradients of the collectives.

Every rank's loss counts equally: what a rank differentiates is the average of all ranks' losses.
So the gradient of a collective is a collective, and all ranks must ask for it.

Importing this module registers them, by op type: they work on graphs that were loaded, too.
"""

from __future__ import annotations

import tensorflow as tf

from horovod.common.reduce_ops import Average
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
    )


def _allgather(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The average over the ranks, of which this rank takes the rows that it had sent.

    Where those rows are is known when it runs: each rank tells the others its number and how many
    rows it has.
    """
    tensor = op.inputs[0]
    rank = tf.cast(_raw.function_of("HorovodRank")(), tf.int64)
    rows = tf.shape(tensor, out_type=tf.int64)[0]
    table = _raw.call(  # one row [rank, rows] of each rank, in the order of the process set
        "HorovodAllgather",
        tf.stack([[rank, rows]]),
        name=_name(op, "rows"),
        process_set_id=op.get_attr("process_set_id"),
    )
    place = tf.argmax(tf.cast(tf.equal(table[:, 0], rank), tf.int32))
    begin = tf.reduce_sum(table[:place, 1])
    mine = _average(op, gradient)[begin : begin + rows]
    return tf.ensure_shape(mine, tensor.shape)


def _broadcast(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The average over the ranks on the root; zeros on the others, whose tensor went nowhere."""
    average = _average(op, gradient)
    is_root = tf.equal(_raw.function_of("HorovodRank")(), op.get_attr("root_rank"))
    return tf.where(is_root, average, tf.zeros_like(average))


# Called rather than written as decorators, which would hide the functions' types.
tf.RegisterGradient("HorovodAllgather")(_allgather)
tf.RegisterGradient("HorovodAllreduce")(_allreduce)
tf.RegisterGradient("HorovodBroadcast")(_broadcast)
for _op_type in (
    "HorovodLocalRank",
    "HorovodLocalSize",
    "HorovodProcessSetIncluded",
    "HorovodRank",
    "HorovodSize",
):
    tf.no_gradient(_op_type)
