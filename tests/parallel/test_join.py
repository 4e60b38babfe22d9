"""join: ranks with less data than others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.knobs import environment
from tests.parallel.modes import MODES, evaluate


def _uneven_epochs() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    @tf.function
    def step(x):
        return hvd.allreduce(x, op=hvd.Sum, name="in function")

    for epoch in range(2):
        steps = rank + 1 if epoch == 0 else size - rank
        for number in range(steps):
            present = size - number
            assert hvd.allreduce(1.0, op=hvd.Sum, name="x").numpy() == present
            assert step(tf.constant(2.0)).numpy() == 2 * present
            assert hvd.allreduce(1.0, name="average").numpy() == pytest.approx(present / size)
            rows = hvd.allgather([rank], name="rows").numpy().tolist()
            assert rows == [r for r in range(size) if (r + 1 if epoch == 0 else size - r) > number]
            group = hvd.grouped_allreduce([1.0, [2.0]], op=hvd.Min, name="group")
            assert [t.numpy().tolist() for t in group] == [1.0, [2.0]]
        last = size - 1 if epoch == 0 else 0
        if epoch == 0:
            assert int(hvd.join()) == last
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                assert session.run(hvd.join()) == last
    assert hvd.allreduce(1.0, op=hvd.Sum, name="x").numpy() == size


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 3])
def test_ranks_join_twice(size):
    run_ranks(_uneven_epochs, size, timeout_s=90)


def _what_needs_a_joined_rank() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    some = hvd.ProcessSet([1, 2])
    hvd.init(process_sets=[some])
    if hvd.rank() == 2:
        assert int(hvd.join()) == 0
    else:
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 2 .*has joined.*root"):
            hvd.broadcast(1.0, root_rank=2, name="b")
        assert hvd.broadcast(5.0 if hvd.rank() else 1.0, root_rank=1, name="b1").numpy() == 5.0
        if hvd.rank() == 1:
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 2 .*has joined"):
                hvd.allreduce(1.0, name="s", process_set=some)
            assert int(hvd.join()) == 0
        else:
            # Until both of the others have joined.
            while hvd.allgather([0], name="who").numpy().tolist() != [0]:
                pass
            hvd.barrier()
            assert hvd.alltoall([1, 2, 3], name="a").numpy().tolist() == [1]
            assert int(hvd.join()) == 0
    if some.included():
        assert hvd.allreduce(1.0, op=hvd.Sum, name="s", process_set=some).numpy() == 2.0
    hvd.barrier()


def test_what_needs_a_joined_rank_fails_by_name():
    run_ranks(_what_needs_a_joined_rank, 3, timeout_s=60)


def _gradients_after_a_join(joined: int) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    present = [r for r in range(size) if r != joined]
    place = present.index(rank) if rank != joined else -1

    def kept(rows: int, r: int) -> int:
        return rows // size + (r < rows % size)

    def scattered(rows: int) -> list[list[float]]:  # what row of rank r has the weight 10 * r + i
        return [
            [10.0 * r + i if r != joined else 0.0]
            for r in range(size)
            for i in range(kept(rows, r))
        ]

    def check(dynamic: bool, mode: str) -> None:
        def gradient(*rows: int, of):
            inputs = [np.ones((n, 1), np.float32) for n in rows]

            def compute(*inputs):
                if mode == "session":
                    return tf.gradients(of(*inputs), inputs)
                with tf.GradientTape() as tape:
                    tape.watch(inputs)
                    loss = of(*inputs)
                return tape.gradient(loss, inputs)

            def hidden():
                if not dynamic:
                    return [tf.constant(value) for value in inputs]
                return [tf.compat.v1.placeholder_with_default(value, None) for value in inputs]

            def build():
                return compute(*hidden())

            return [g.tolist() for g in evaluate(mode, build)]

        def weighted(rows):
            count = tf.shape(rows)[0]
            weights = tf.range(10.0 * rank, 10.0 * rank + tf.cast(count, tf.float32))
            return tf.reduce_sum(rows * weights[:, None])

        suffix = f"{mode} {dynamic}"
        # From rank r this rank's rows come back with the weights 10 * r + where they were there.
        (back,) = gradient(2 * size, of=lambda x: weighted(hvd.alltoall(x, name=f"a {suffix}")))
        assert back == [
            [10.0 * r + 2 * place + i if r != joined else 0.0]
            for r in range(size)
            for i in range(2)
        ]
        splits = [1 + r for r in range(size)]
        (back,) = gradient(
            sum(splits),
            of=lambda x: weighted(hvd.alltoall(x, splits=splits, name=f"s {suffix}")[0]),
        )
        assert back == [
            [10.0 * r + (1 + r) * place + i if r != joined else 0.0]
            for r in range(size)
            for i in range(1 + r)
        ]
        (back,) = gradient(
            4, of=lambda x: weighted(hvd.reducescatter(x, op=hvd.Average, name=f"r {suffix}"))
        )
        assert back == scattered(4)
        back = gradient(
            4,
            5,
            of=lambda *x: sum(
                map(
                    weighted, hvd.grouped_reducescatter(list(x), op=hvd.Average, name=f"g {suffix}")
                )
            ),
        )
        assert back == [scattered(4), scattered(5)]

    if rank != joined:
        for mode in MODES:
            for dynamic in (False, True):
                check(dynamic, mode)
    hvd.join()


@pytest.mark.parametrize("joined", [0, 1, 2])
def test_gradients_have_zeros_where_rows_went_to_a_joined_rank(joined):
    run_ranks(_gradients_after_a_join, 3, joined, timeout_s=90)


def _averages_of_slices(auto: str, average: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(HOROVOD_SPARSE_AUTO_DENSE=auto, HOROVOD_JOIN_AVERAGE=average):
        hvd.init()
    rank, size = hvd.rank(), hvd.size()
    if rank != 1:
        among = size - 1 if average == "contributing" else size
        for mode in MODES:
            for dtype in ("float32", "int32"):

                def build(mode=mode, dtype=dtype):
                    value = tf.constant([[24.0], [12.0]])
                    slices = tf.IndexedSlices(tf.cast(value, dtype), [0, 1], [2, 1])
                    mean = hvd.allreduce(slices, name=f"{mode} {dtype}")
                    return tf.convert_to_tensor(mean)

                expected = [[24.0 * (size - 1) / among], [12.0 * (size - 1) / among]]
                assert evaluate(mode, build).tolist() == expected, (mode, dtype)

            def gradient(mode=mode):
                value = tf.constant([[24.0], [12.0]])
                with tf.GradientTape() as tape:
                    tape.watch(value)
                    slices = tf.IndexedSlices(value, [0, 1], [2, 1])
                    mean = hvd.allreduce(slices, name=f"{mode} gradient").values
                    loss = tf.reduce_sum(mean)
                return tape.gradient(loss, value)

            # The average over the ranks of the gradient of an average.
            each = (size - 1) / among / among
            np.testing.assert_allclose(evaluate(mode, gradient), [[each], [each]], err_msg=mode)
    hvd.join()


@pytest.mark.parametrize("average", ["size", "contributing"])
@pytest.mark.parametrize("auto", ["0", "1"])
def test_averages_of_slices_are_over_the_ranks_that_the_knob_says(auto, average):
    run_ranks(_averages_of_slices, 3, auto, average, timeout_s=90)
