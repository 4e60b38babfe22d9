"""Collectives of some of the ranks, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate


def _ranks_0_and_2() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    pair, unknown = hvd.ProcessSet([0, 2]), hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])
    rank = hvd.rank()
    with pytest.raises(ValueError, match="not known"):
        hvd.allreduce(1.0, process_set=unknown)

    def build():
        # What the set's ranks are counted as is not what they are called: rank 2 is its second.
        x = tf.fill([rank + 1], float(rank + 1))
        rows = hvd.allgather(x, process_set=pair)
        if tf.executing_eagerly():
            with tf.GradientTape() as tape:
                tape.watch(x)
                rows = hvd.allgather(x, process_set=pair)
                loss = tf.reduce_sum(rows * tf.range(4.0) * (rank + 1))
            gradient = tape.gradient(loss, x)
        else:
            gradient = tf.gradients(tf.reduce_sum(rows * tf.range(4.0) * (rank + 1)), x)[0]
        return [
            hvd.allreduce(rank + 1, op=hvd.Sum, process_set=pair),
            hvd.allreduce(float(rank), process_set=pair),
            hvd.broadcast(rank, 2, process_set=pair),
            hvd.size_op(pair.process_set_id),
            hvd.process_set_included_op(pair.process_set_id),
            rows,
            gradient,
        ]

    for mode in MODES:
        if rank != 1:
            total, mean, sent, size, included, rows, gradient = evaluate(mode, build)
            assert (total, mean, sent, size, included) == (4, 1.0, 2, 2, 1)
            np.testing.assert_array_equal(rows, [1.0, 3.0, 3.0, 3.0])
            # The losses weigh row i by i and 3 i: 2 i on average; rank 2 has rows 1, 2 and 3.
            np.testing.assert_array_equal(gradient, [0.0] if rank == 0 else [2.0, 4.0, 6.0])
        else:
            assert hvd.process_set_included_op(pair.process_set_id).numpy() == 0
        assert evaluate(mode, lambda: hvd.allreduce(1, op=hvd.Sum)) == 3


@pytest.mark.smoke
def test_a_set_of_ranks_works_on_its_own():
    run_ranks(_ranks_0_and_2, 3, timeout_s=90)


def _dynamic() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init(process_sets="dynamic")
    rank = hvd.rank()
    with pytest.raises(ValueError, match="which stays"):
        hvd.remove_process_set(hvd.global_process_set)
    for wrong in ([0.5], ["a"], [0, None]):
        with pytest.raises(ValueError, match=r"ranks \[.*\] must be whole numbers"):
            hvd.add_process_set(wrong)
    assert hvd.ProcessSet(np.array([2, 0])).ranks == [0, 2]
    for mode in MODES:
        pair = hvd.add_process_set([2, 0])
        number = pair.process_set_id

        def build(pair=pair):
            return [
                hvd.allreduce(float(rank), op=hvd.Sum, process_set=pair, name="pair"),
                hvd.size_op(pair.process_set_id),
            ]

        if rank != 1:
            assert evaluate(mode, build) == [2.0, 2]
        # A graph keeps the number of its set.
        graph = tf.Graph()
        with graph.as_default():
            node = hvd.allreduce(float(rank), process_set=pair, name="late")
        assert hvd.remove_process_set(pair)
        removed = pytest.raises(tf.errors.InvalidArgumentError, match=f"no process set {number}")
        with tf.compat.v1.Session(graph=graph) as session, removed:
            session.run(node)
        with pytest.raises(ValueError, match="not known"):
            hvd.allreduce(1.0, process_set=pair)
        assert evaluate(mode, lambda: hvd.allreduce(1, op=hvd.Sum)) == 3


@pytest.mark.smoke
def test_sets_come_and_go_while_the_job_runs():
    run_ranks(_dynamic, 3, timeout_s=90)
