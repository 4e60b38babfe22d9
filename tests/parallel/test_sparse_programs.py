"""Programs with `tf.IndexedSlices`: training, gradients, join, process sets and loops.

Each runs with the rows gathered and, by HOROVOD_SPARSE_AUTO_DENSE, in dense tensors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.knobs import SPARSE_AUTO_DENSE as AUTO
from tests.parallel.knobs import environment
from tests.parallel.modes import MODES, evaluate


def _train(auto: str) -> dict[str, list[np.ndarray]]:
    """Trains an embedding whose last row no rank looks up, with what keeps a state for each row."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    rank = hvd.rank()
    v1 = tf.compat.v1
    variables = {}
    for options in ({}, {"gradient_predivide_factor": 4.0}, {"sparse_as_dense": True}):
        for kind in ("Momentum", "Adam", "Adagrad"):
            with tf.Graph().as_default(), v1.Session() as session:
                words = v1.placeholder(tf.int32, [None])
                table = v1.get_variable("table", initializer=np.ones((6, 3), np.float32))
                loss = tf.reduce_sum(tf.gather(table, words) ** 2)
                arguments = (0.1, 0.9) if kind == "Momentum" else (0.1,)
                optimizer = getattr(v1.train, f"{kind}Optimizer")(*arguments)
                train = hvd.DistributedOptimizer(optimizer, **options).minimize(loss)
                session.run(v1.global_variables_initializer())
                for step in range(6):
                    # Few rows, then many, some twice; and on rank 1 often none at all.
                    mine = [step % 3] if step % 2 else [0, 1, 2, 2, 3, 4]
                    session.run(train, {words: [] if rank == 1 and step < 4 else mine})
                key = f"{kind} {options}"
                variables[key] = session.run(v1.global_variables())
    return variables


@pytest.mark.parametrize("size", [1, 2, 3])
def test_optimizers_with_a_state_for_each_row_train_the_same_either_way(size):
    gathered = run_ranks(_train, size, "0", timeout_s=180)
    dense = run_ranks(_train, size, "1", timeout_s=180)
    for key in gathered[0]:
        for mine, others, auto in zip(gathered[0][key], gathered[-1][key], dense[-1][key]):
            np.testing.assert_array_equal(mine, others, key)
            np.testing.assert_allclose(auto, mine, rtol=1e-5, atol=1e-6, err_msg=key)


def _sparse_as_dense() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    table = tf.Variable(tf.ones([5, 2]), name="table")
    # Rank 0 has no row, the others one twice.
    mine = tf.constant([] if rank == 0 else [rank, 4, 4], tf.int32)
    want = np.zeros((5, 2))
    for r in range(1, size):
        want[r] += 1 / size
        want[4] += 2 / size

    def gradient(looks_up: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, looks_up))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=True)
        return tape.gradient(loss, table)

    for run in (gradient, tf.function(gradient)):
        reduced = run(mine)
        assert isinstance(reduced, tf.Tensor)
        np.testing.assert_allclose(reduced, want, rtol=1e-6)
        np.testing.assert_array_equal(run(mine[:0]), np.zeros((5, 2)))

    # Gradients of a program's own, whose shape only the source knows.
    optimizer = hvd.DistributedOptimizer(
        tf.compat.v1.train.GradientDescentOptimizer(1.0), sparse_as_dense=True
    )
    shapeless = tf.IndexedSlices(tf.ones([tf.size(mine), 2]), mine)
    np.testing.assert_allclose(optimizer._allreduce(shapeless, table), want, rtol=1e-6)
    with pytest.raises(ValueError, match=r"gradient 'HorovodAllreduce_grad_0'.*dense_shape"):
        optimizer._allreduce(shapeless)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sparse_as_dense_with_empty_slices_duplicates_and_no_shape(size):
    run_ranks(_sparse_as_dense, size)


def _uneven_data(auto: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for step in range(rank + 1):
        present = size - step
        for mode in MODES:

            def build(step: int = step) -> Any:
                slices = tf.IndexedSlices(tf.ones([4, 2]), tf.range(4), [4, 2])
                return tf.convert_to_tensor(hvd.allreduce(slices, name=f"x{step}"))

            np.testing.assert_allclose(
                evaluate(mode, build), np.full((4, 2), present / size), rtol=1e-6
            )
    hvd.join()


@pytest.mark.parametrize("auto", ["0", "1"])
def test_ranks_that_have_joined_have_no_rows(auto):
    run_ranks(_uneven_data, 3, auto)


def _check_gradients(auto: str, rows: int) -> None:
    """What flows back to each row, which is the same however the rows travelled."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    values = tf.ones([rows, 2])
    indices = tf.range(rows) % 4

    def gradient(op: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            slices = tf.IndexedSlices(values, indices, [4, 2])
            result = hvd.allreduce(slices, op=op, name="x")
            loss = (hvd.rank() + 1.0) * tf.reduce_sum(result.values)
        return tape.gradient(loss, values)

    size = hvd.size()
    mean = (size + 1) / 2
    for run in (gradient, tf.function(gradient)):
        np.testing.assert_allclose(run(hvd.Sum), np.full((rows, 2), mean), rtol=1e-6)
        np.testing.assert_allclose(run(hvd.Average), np.full((rows, 2), mean / size), rtol=1e-6)


@pytest.mark.parametrize("auto", ["0", "1"])
@pytest.mark.parametrize("rows", [1, 8])
def test_gradients_flow_back_to_the_rows(auto, rows):
    run_ranks(_check_gradients, 2, auto, rows)


def _sets_groups_and_devices(auto: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    pair = hvd.ProcessSet([0, 2])
    with environment(**{AUTO: auto}):
        hvd.init(process_sets=[pair])
    rank = hvd.rank()
    for mode in MODES:

        def build() -> Any:
            slices = tf.IndexedSlices(tf.fill([6, 1], rank + 1.0), tf.range(6) % 3, [3, 1])
            one = hvd.allreduce(slices, process_set=pair, device_sparse="/cpu:0", name="one")
            group = hvd.grouped_allreduce([slices, [rank + 1.0]], process_set=pair, name="group")
            return [tf.convert_to_tensor(one), tf.convert_to_tensor(group[0]), group[1]]

        if pair.included():
            one, first, second = evaluate(mode, build)
            np.testing.assert_allclose(one, np.full((3, 1), 4.0))  # 2 rows of each, 2 on average
            np.testing.assert_allclose(first, np.full((3, 1), 4.0))
            np.testing.assert_allclose(second, [2.0])
    hvd.barrier()


@pytest.mark.parametrize("auto", ["0", "1"])
def test_slices_in_process_sets_and_groups(auto):
    run_ranks(_sets_groups_and_devices, 3, auto)


def _loop(auto: str) -> None:
    """Slices of a loop's iterations, whose number of rows changes the way from one to the next."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def steps(count):
        total = tf.zeros([6, 2])
        for step in tf.range(count):
            rows = (step * (rank + 1)) % 7
            slices = tf.IndexedSlices(tf.ones([rows, 2]), tf.range(rows), [6, 2])
            total += tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum, name="x"))
        return total

    want = np.zeros((6, 2))
    for step in range(12):
        for r in range(size):
            want[: (step * (r + 1)) % 7] += 1
    np.testing.assert_array_equal(steps(tf.constant(12)), want)


@pytest.mark.parametrize("auto", ["0", "1"])
def test_slices_in_a_loop_of_a_function(auto):
    run_ranks(_loop, 3, auto)
