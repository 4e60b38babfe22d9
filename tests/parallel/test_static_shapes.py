"""What a graph knows of the shapes of collectives and of their gradients before it runs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.pool import run_ranks

# What goes in, what comes out where a rank gets all that it gave, and where it gets other rows.
# None is an unknown dimension, or an unknown shape.
SHAPES: list[tuple[Any, Any, Any]] = [
    ([4, 3], [4, 3], [None, 3]),
    ([None, 3], [None, 3], [None, 3]),
    ([4, None], [4, None], [None, None]),
    ([4], [4], [None]),
    (None, None, None),
]


def _list(tensor: Any) -> Any:
    shape = tensor.shape
    return None if shape.rank is None else shape.as_list()


def _shapes() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    same = {
        "allreduce": lambda x: hvd.allreduce(x),
        "compressed": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
        "grouped_allreduce": lambda x: hvd.grouped_allreduce([tf.zeros([7]), x])[1],
        "broadcast": lambda x: hvd.broadcast(x, 0),
    }
    other_rows = {
        "allgather": lambda x: hvd.allgather(x),
        "grouped_allgather": lambda x: hvd.grouped_allgather([tf.zeros([7]), x])[1],
        "alltoall": lambda x: hvd.alltoall(x),
        "alltoall with splits": lambda x: hvd.alltoall(x, splits=[4])[0],
        "reducescatter": lambda x: hvd.reducescatter(x),
        "grouped_reducescatter": lambda x: hvd.grouped_reducescatter([tf.zeros([7]), x])[1],
    }
    with tf.Graph().as_default():
        for given, if_same, if_other_rows in SHAPES:
            for functions, want in ((same, if_same), (other_rows, if_other_rows)):
                for name, function in functions.items():
                    x = tf.compat.v1.placeholder(tf.float32, given)
                    y = function(x)
                    assert _list(y) == want, (name, given)
                    [gradient] = tf.gradients(y, x)
                    assert _list(gradient) == given, ("gradient", name, given)
        scalar = tf.compat.v1.placeholder(tf.float32, [])
        for name, function in same.items():
            assert _list(function(scalar)) == [], name
        _, received = hvd.alltoall(tf.zeros([4]), splits=[4])
        assert _list(received) == [None]
        values = tf.compat.v1.placeholder(tf.float32, [2, 3])
        slices = hvd.allreduce(tf.IndexedSlices(values, tf.constant([0, 1]), [9, 3]))
        assert _list(slices.values) == [None, 3] and _list(slices.indices) == [None]
        for number in (
            hvd.rank_op(),
            hvd.local_rank_op(),
            hvd.size_op(),
            hvd.local_size_op(),
            hvd.process_set_included_op(),
            hvd.join(),
        ):
            assert _list(number) == []


@pytest.mark.smoke
def test_shapes_are_as_well_known_as_can_be():
    run_ranks(_shapes, 1)
