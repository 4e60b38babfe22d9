"""Many collectives at once, in whatever order the ranks have them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.harness.pool import run_ranks


def _names_in_opposite_order(names: int, steps: int) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    order = list(range(names))
    if hvd.rank() % 2:
        order.reverse()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        one = tf.compat.v1.placeholder(tf.float32, [])
        sums = {i: hvd.allreduce(tf.fill([3], one * i), op=hvd.Sum, name=f"t{i}") for i in order}
        fetches = [sums[i] for i in range(names)]
        for _ in range(steps):
            values = session.run(fetches, {one: hvd.rank() + 1.0})
            total = hvd.size() * (hvd.size() + 1) / 2
            np.testing.assert_array_equal(values, np.outer(np.arange(names), np.full(3, total)))


@pytest.mark.smoke
@pytest.mark.parametrize("size", [2, 3])
def test_200_names_in_opposite_order(size):
    run_ranks(_names_in_opposite_order, size, 200, 10, timeout_s=120)


def test_2000_names_in_one_step():
    run_ranks(_names_in_opposite_order, 2, 2000, 3, timeout_s=180)


def _one_after_another_in_each_ranks_order() -> None:
    """One thread per name, started in random order: every kind of collective in flight at once."""
    import threading

    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    wrong: list[str] = []

    def run(i: int) -> None:
        for step in range(5):
            if i % 3 == 0:
                value, want = (
                    hvd.allreduce(rank + i, op=hvd.Sum, name=f"n{i}"),
                    size * i + sum(range(size)),
                )
            elif i % 3 == 1:
                value = tf.reduce_sum(hvd.allgather([rank + i], name=f"n{i}"))
                want = size * i + sum(range(size))
            else:
                value, want = hvd.broadcast(rank + i, i % size, name=f"n{i}"), i % size + i
            if value.numpy() != want:
                wrong.append(f"n{i} step {step}: {value.numpy()}, not {want}")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(24)]
    random.Random(rank).shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_eager_threads_in_random_order():
    run_ranks(_one_after_another_in_each_ranks_order, 3, timeout_s=90)


def _one_name_many_times(times: int) -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    for step in range(times):
        total = hvd.allreduce(float(step + hvd.rank()), op=hvd.Sum, name="loop").numpy()
        assert total == 2.0 * step + 1.0, step


def test_one_name_10000_times():
    run_ranks(_one_name_many_times, 2, 10_000, timeout_s=300)


def _same_node_many_times_in_flight() -> None:
    """A v1 map_fn runs one node several times at once, in varying order."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        elements = tf.range(32.0)
        mapped = tf.compat.v1.map_fn(
            lambda x: hvd.allreduce(x + hvd.rank(), op=hvd.Sum, name="inner"),
            elements,
            parallel_iterations=8,
        )
        for _ in range(5):
            np.testing.assert_array_equal(session.run(mapped), 2 * np.arange(32.0) + 1)


def test_a_node_in_a_loop_is_in_flight_several_times():
    run_ranks(_same_node_many_times_in_flight, 2)
