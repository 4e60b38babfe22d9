"""DistributedOptimizer with op=Adasum: steps of each rank, combined, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks

RATE, MOMENTUM, STEPS = 0.1, 0.9, 3
WAYS = ("ref", "resource", "function", "eager")
START = np.array([1.0, -2.0, 0.5])


def _adasum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dot = np.sum(a * b)
    return (1 - dot / (2 * np.sum(a * a))) * a + (1 - dot / (2 * np.sum(b * b))) * b


def _x(rank: int, number: int) -> np.ndarray:
    return np.array([rank + 1.0, 1.0 - rank, number + 0.5 * rank])


def _expected(k: int) -> list[np.ndarray]:
    """The variable after each combination, of two ranks with k local steps of momentum."""
    w, slots, history = START, [0.0, 0.0], []
    for step in range(STEPS):
        ends = []
        for rank in range(2):
            local = w
            for number in range(k):
                slots[rank] = MOMENTUM * slots[rank] + _x(rank, step * k + number)
                local = local - RATE * slots[rank]
            ends.append(local - w)
        w = w + _adasum(*ends)
        history.append(w)
    return history


def _train(way: str, k: int, updates: bool) -> tuple[list, list]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    plain = v1.train.MomentumOptimizer(RATE, MOMENTUM)
    optimizer = hvd.DistributedOptimizer(
        plain, op=hvd.Adasum, backward_passes_per_step=k, step_counts_updates=updates
    )
    history, steps = [], []
    if way in ("function", "eager"):
        w, own = tf.Variable(START, dtype=tf.float32), tf.Variable(1.0)
        step = tf.Variable(0, dtype=tf.int64)
        optimizer.register_local_var(own)

        def one(x):
            loss = lambda: tf.reduce_sum(w * x) + own * float(hvd.rank())  # noqa: E731
            optimizer.minimize(loss, global_step=step, var_list=[w, own])

        run = tf.function(one) if way == "function" else one
        for number in range(STEPS * k):
            run(tf.constant(_x(hvd.rank(), number), tf.float32))
            history.append(w.numpy())
            steps.append(step.numpy())
        last = own.numpy()
    else:
        with tf.Graph().as_default(), v1.Session() as session:
            with v1.variable_scope("model", use_resource=way == "resource"):
                w = v1.get_variable("w", initializer=START.astype(np.float32))
                own = v1.get_variable("own", initializer=1.0)
            step = v1.train.get_or_create_global_step()
            optimizer.register_local_var(own)
            x = v1.placeholder(tf.float32, [3])
            loss = tf.reduce_sum(w * x) + own * float(hvd.rank())
            train = optimizer.minimize(loss, global_step=step)
            assert plain.get_slot(w, "momentum").op.name == "model/w/Momentum"
            session.run(v1.global_variables_initializer())
            for number in range(STEPS * k):
                session.run(train, {x: _x(hvd.rank(), number)})
                value, count = session.run([w, step])
                history.append(value)
                steps.append(count)
            last = session.run(own)
    # The local variable has gone its own way: no other rank's step is in it.
    assert (last == 1.0) == (hvd.rank() == 0)
    return history, steps


def _against_numpy() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    for way in WAYS:
        for k in (1, 2):
            history, steps = _train(way, k, updates=k == 2 and way != "function")
            np.testing.assert_allclose(
                history[k - 1 :: k], _expected(k), rtol=1e-5, err_msg=f"{way} {k}"
            )
            counted = np.arange(1, STEPS * k + 1)
            expected = counted // k if k == 2 and way != "function" else counted
            np.testing.assert_array_equal(steps, expected)
            gathered = hvd.allgather(history[-1][None]).numpy()
            np.testing.assert_array_equal(gathered[0], gathered[1])


@pytest.mark.smoke
def test_steps_are_combined_by_adasum():
    run_ranks(_against_numpy, 2, timeout_s=120)


def _sparse_and_alone() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    table = tf.Variable(tf.zeros([4, 2]))
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0), op=hvd.Adasum
    )
    rows = [hvd.rank()]
    optimizer.minimize(lambda: tf.reduce_sum(tf.gather(table, rows)), var_list=[table])
    # Steps on different rows are orthogonal, and add up.
    expected = np.zeros((4, 2))
    expected[: hvd.size()] = -1
    np.testing.assert_allclose(table.numpy(), expected)


@pytest.mark.parametrize("size", [1, 2])
def test_sparse_gradients_are_applied_before(size):
    run_ranks(_sparse_and_alone, size)
