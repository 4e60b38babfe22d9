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


def _rows(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the first dimension; where it is known, a constant that does not keep the tensor."""
    known = tf.compat.dimension_value(tensor.shape[0])
    return tf.shape(tensor)[0] if known is None else tf.constant(known)


def _spread(rows: tf.Tensor, counts: tf.Tensor, there: tf.Tensor) -> tf.Tensor:
    """Puts rows of some ranks among zeros, where those of the other ranks would be.

    Args:
      rows: shape [rows, ...], in rank order; an error if they are not as many as `counts` say.
      counts: int32 of shape [size], the rows of each rank.
      there: bool of shape [size], whether a rank's rows are among `rows`.

    Returns:
      A tensor of shape [sum of counts, ...].
    """
    places = tf.where(tf.repeat(there, counts))
    shape = tf.concat([[tf.reduce_sum(counts)], tf.shape(rows)[1:]], axis=0)
    return tf.scatter_nd(places, rows, tf.cast(shape, tf.int64))


def _alltoall(op: tf.Operation, gradient: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, None]:
    """The rows of the gradient go back to where those of the tensor came from.

    A rank that has joined sends none back: zeros for the rows that nobody used.
    """
    back, returned = _raw.call(
        "HorovodAlltoall",
        tf.convert_to_tensor(gradient),
        op.outputs[1],
        name=_name(op, "grad"),
        process_set_id=op.get_attr("process_set_id"),
    )
    sent = op.inputs[1]
    if not sent.shape.num_elements():  # no splits, or it is not known whether there are
        size = tf.size(returned)
        sent = tf.concat([sent, tf.fill([size], _rows(op.inputs[0]) // size)], axis=0)[:size]
    whole = tf.cond(
        tf.reduce_all(tf.equal(returned, sent)),
        lambda: tf.identity(back),
        lambda: _spread(back, sent, returned > 0),
    )
    return tf.ensure_shape(whole, op.inputs[0].shape), None


def _reducescatter_factor(op: tf.Operation) -> float | tf.Tensor:
    factor = op.get_attr("prescale_factor") * op.get_attr("postscale_factor")
    if op.get_attr("reduce_op") != int(Sum):
        return factor
    size = _raw.function_of("HorovodSize")(process_set_id=op.get_attr("process_set_id"))
    return factor * tf.cast(size, tf.float64)


def _whole(op: tf.Operation, gathered: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Puts zeros where rows of a reducescatter's gradients are missing: of ranks that have joined.

    All other ranks see that alike, so all of them ask which ranks those are, or none does.
    """
    set_id = op.get_attr("process_set_id")
    size = _raw.function_of("HorovodSize")(process_set_id=set_id)
    totals = tf.stack([_rows(tensor) for tensor in op.inputs])

    def with_zeros() -> list[tf.Tensor]:
        rank = _raw.function_of("HorovodRank")()  # its place too: only the set of all has a join
        answering = _raw.call(
            "HorovodAllgather", rank[tf.newaxis], name=_name(op, "who"), process_set_id=set_id
        )
        places = tf.range(size)
        there = tf.reduce_any(tf.equal(places[:, tf.newaxis], answering), axis=1)
        return [
            _spread(tensor, totals[i] // size + tf.cast(places < totals[i] % size, tf.int32), there)
            for i, tensor in enumerate(gathered)
        ]

    all_there = tf.reduce_all(tf.equal(tf.stack([tf.shape(t)[0] for t in gathered]), totals))
    whole = tf.cond(all_there, lambda: [tf.identity(t) for t in gathered], with_zeros)
    return [tf.ensure_shape(tensor, like.shape) for tensor, like in zip(whole, op.inputs)]


def _reducescatter(op: tf.Operation, gradient: tf.Tensor) -> tf.Tensor:
    """The allgather of the gradients, times the factors and, for Sum, the size."""
    gathered = _raw.call(
        "HorovodAllgather",
        tf.convert_to_tensor(gradient),
        name=_name(op, "grad"),
        process_set_id=op.get_attr("process_set_id"),
    )
    (whole,) = _whole(op, [gathered])
    return whole * tf.cast(_reducescatter_factor(op), whole.dtype)


def _grouped_reducescatter(op: tf.Operation, *gradients: tf.Tensor) -> list[tf.Tensor]:
    """As of a reducescatter, for each tensor."""
    gathered = _raw.call(
        "HorovodGroupedAllgather",
        [tf.convert_to_tensor(gradient) for gradient in gradients],
        name=_name(op, "grad"),
        process_set_id=op.get_attr("process_set_id"),
    )
    factor = _reducescatter_factor(op)
    return [tensor * tf.cast(factor, tensor.dtype) for tensor in _whole(op, gathered)]


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
