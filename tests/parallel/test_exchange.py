"""alltoall, reducescatter and grouped collectives, in every mode."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate

_DTYPES = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def _rows(rank: int, count: int, dtype: str):
    import tensorflow as tf

    numbers = tf.reshape(tf.range(count * 2), [count, 2]) + 3 * rank
    return tf.cast(numbers % 5, dtype)


def _lists(value):
    import tensorflow as tf

    def one(x):
        return np.asarray(tf.cast(x, tf.float64)).tolist()

    return tf.nest.map_structure(one, value)


def _alltoall() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    # Rank r has (r + t) % 3 rows for rank t; some ranks send or get nothing.
    splits = [[(r + t) % 3 for t in range(size)] for r in range(size)]
    for mode in MODES:
        for dtype in _DTYPES:

            def build(mode=mode, dtype=dtype):
                mine = _rows(rank, sum(splits[rank]), dtype)
                uneven = hvd.alltoall(mine, splits=splits[rank], name=f"{mode}{dtype}")
                even = hvd.alltoall(_rows(rank, 2 * size, dtype), name=f"{mode}{dtype}even")
                empty = hvd.alltoall(mine[:0], splits=[0] * size, name=f"{mode}{dtype}empty")
                return uneven, even, empty

            (uneven, received), even, (empty, none) = evaluate(mode, build)
            parts = []
            for r in range(size):
                begin = sum(splits[r][:rank])
                all_rows = _lists(_rows(r, sum(splits[r]), dtype))
                parts += all_rows[begin : begin + splits[r][rank]]
            np.testing.assert_array_equal(
                np.reshape(_lists(uneven), [-1, 2]), np.reshape(parts, [-1, 2])
            )
            assert received.tolist() == [splits[r][rank] for r in range(size)]
            assert received.dtype == np.int32
            want = [_lists(_rows(r, 2 * size, dtype))[2 * rank : 2 * rank + 2] for r in range(size)]
            assert _lists(even) == [row for two in want for row in two]
            assert empty.shape == (0, 2) and none.tolist() == [0] * size


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 3])
def test_alltoall_gives_each_rank_its_rows(size):
    run_ranks(_alltoall, size, timeout_s=120)


def _kept(rank: int, size: int, rows: int) -> slice:
    first = [rows // size + (r < rows % size) for r in range(size)]
    return slice(sum(first[:rank]), sum(first[: rank + 1]))


def _reducescatter() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    for mode in MODES:
        for rows in (0, 1, size, 2 * size + 1):
            everyone = [_lists(_rows(r, rows, "float32")) for r in range(size)]
            total = np.reshape(np.sum(everyone, axis=0), [-1, 2])

            def build(mode=mode, rows=rows):
                mine = _rows(rank, rows, "float32")
                name = f"{mode}{rows}"
                return [
                    hvd.reducescatter(mine, op=hvd.Sum, name=f"{name}s"),
                    hvd.reducescatter(mine, name=f"{name}a"),
                    hvd.reducescatter(mine, op=hvd.Max, name=f"{name}m"),
                    hvd.reducescatter(
                        tf.cast(mine, tf.int32), op=hvd.Sum, prescale_factor=0.5, name=f"{name}i"
                    ),
                    *hvd.grouped_reducescatter([mine, mine * 2], op=hvd.Sum, name=f"{name}g"),
                ]

            got = evaluate(mode, build)
            mine = _kept(rank, size, rows)
            np.testing.assert_allclose(got[0], total[mine])
            np.testing.assert_allclose(got[1], total[mine] / size, rtol=1e-6)
            np.testing.assert_allclose(got[2], np.reshape(np.max(everyone, axis=0), [-1, 2])[mine])
            np.testing.assert_array_equal(got[3], np.trunc(total[mine] * 0.5))
            np.testing.assert_allclose(got[4], total[mine])
            np.testing.assert_allclose(got[5], 2 * total[mine])


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 3])
def test_reducescatter_gives_each_rank_its_rows_of_the_reduction(size):
    run_ranks(_reducescatter, size, timeout_s=90)


def _grouped() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    total = sum(range(1, size + 1))
    for mode in MODES:

        def build(mode=mode):
            mine = float(rank + 1)
            slices = tf.IndexedSlices([[mine]], [rank], dense_shape=[size, 1])
            # Two dtypes, an empty tensor, a scalar, and slices in one group.
            *tensors, slices = hvd.grouped_allreduce(
                [tf.fill([3], mine), tf.constant(rank), tf.zeros([0, 2]), mine, slices],
                op=hvd.Sum,
                name=f"{mode}sum",
            )
            return (
                (*tensors, slices.indices, slices.values),
                hvd.grouped_allreduce(
                    [tf.fill([2], mine)], compression=hvd.Compression.fp16, name=f"{mode}average"
                ),
                hvd.grouped_allgather([tf.fill([rank, 1], mine), [rank]], name=f"{mode}rows"),
                hvd.grouped_allreduce([], name=f"{mode}none"),
                hvd.grouped_allreduce((x for x in (mine, slices)), name=f"{mode}generator")[0],
            )

        got, (average,), (rows, ranks), none, of_generator = evaluate(mode, build)
        three, number, empty, scalar, indices, values = got
        assert three.tolist() == [total] * 3 and scalar.tolist() == total
        assert number.tolist() == total - size and number.dtype == np.int32
        assert empty.shape == (0, 2) and none == []
        assert of_generator == total / size
        assert indices.tolist() == list(range(size))
        assert values[:, 0].tolist() == [r + 1 for r in range(size)]
        assert average.tolist() == [total / size] * 2 and average.dtype == np.float32
        assert rows[:, 0].tolist() == [r + 1 for r in range(size) for _ in range(r)]
        assert ranks.tolist() == list(range(size))


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_groups(size):
    run_ranks(_grouped, size, timeout_s=90)


def _groups_of_several_dtypes() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    f32, f64, i32 = (tf.ones([2], dtype) for dtype in (tf.float32, tf.float64, tf.int32))
    for mine, yours, words in (
        ([f32, i32], [f32], "1 float32 of a group of 2"),
        ([f32, f64], [f32, f32], "1 float32 of a group of 2"),
        ([f32, f64], [f64, f32], "dtype float64"),
        ([f32, i32, i32], [f32, i32], "1 float32 of a group of 3"),
    ):
        for name in ("g", None):
            with pytest.raises(tf.errors.FailedPreconditionError, match=words):
                hvd.grouped_allreduce(yours if hvd.rank() else mine, op=hvd.Sum, name=name)
    # A wrong one behind a right one: nothing of the group has run.
    error = tf.errors.InvalidArgumentError if hvd.rank() else tf.errors.FailedPreconditionError
    with pytest.raises(error, match="string"):
        hvd.grouped_allreduce([f32, tf.constant("one") if hvd.rank() else i32], name="g")
    sums = hvd.grouped_allreduce([f32, i32, f64], op=hvd.Sum, name="g")
    assert [s.dtype for s in sums] == [tf.float32, tf.int32, tf.float64]
    assert all(s.numpy().tolist() == [2, 2] for s in sums)
    # Who fetches one runs all of it, and what one waits for all wait for.
    with tf.Graph().as_default(), v1.Session() as session:
        late = v1.placeholder(tf.float64, [2])
        sums = hvd.grouped_allreduce([tf.ones([2]), late], op=hvd.Sum, name="g")
        fetched = sums[hvd.rank()]
        assert session.run(fetched, {late: [1.0, 1.0]}).tolist() == [2.0, 2.0]
        with pytest.raises(tf.errors.InvalidArgumentError, match="must feed a value"):
            session.run(sums[0])


def test_groups_of_several_dtypes():
    run_ranks(_groups_of_several_dtypes, 2)


def _one_member_is_wrong() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    # The whole group fails, on all ranks, though only one tensor differs.
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"shape of tensor 1 \[2\]"):
        hvd.grouped_allreduce([tf.ones([3]), tf.ones([1 + hvd.rank()])], name="g")
    with pytest.raises(tf.errors.FailedPreconditionError, match="a group of 2"):
        hvd.grouped_allreduce([1.0] * (1 + hvd.rank()), name="g")
    # What one rank alone can see.
    error = tf.errors.InvalidArgumentError if hvd.rank() else tf.errors.FailedPreconditionError
    for wrong in (
        lambda name: hvd.alltoall([1, 2], splits=[2 + hvd.rank(), -hvd.rank()], name=name),
        lambda name: hvd.alltoall([1, 2], splits=[1, 1 - hvd.rank()], name=name),
        lambda name: hvd.alltoall([1, 2], splits=[[1, 1]] if hvd.rank() else [1, 1], name=name),
        lambda name: hvd.alltoall(
            [1, 2], splits=tf.constant([1, 1], tf.int64 if hvd.rank() else tf.int32), name=name
        ),
        lambda name: hvd.alltoall([1, 2], splits=[] if hvd.rank() else [1, 1], name=name),
        lambda name: hvd.alltoall([1] * (2 + hvd.rank()), name=name),
        lambda name: hvd.reducescatter(1.0 if hvd.rank() else [1.0], name=name),
        lambda name: hvd.allreduce("one" if hvd.rank() else 1.0, name=name),
        lambda name: hvd.allgather([1j] if hvd.rank() else [1.0], name=name),
        lambda name: hvd.grouped_allgather([[1.0], 1.0 if hvd.rank() else [1.0]], name=name),
    ):
        with pytest.raises(error):
            wrong("w")
        assert hvd.allreduce(1.0, op=hvd.Sum, name="after").numpy() == hvd.size()
    for none in ([], np.zeros(0, np.int32), tf.zeros([0], tf.int32)):
        for mode in MODES:
            with pytest.raises(tf.errors.InvalidArgumentError, match="'e': splits are 0 numbers"):
                evaluate(mode, lambda none=none: hvd.alltoall([1, 2], splits=none, name="e"))


@pytest.mark.smoke
def test_what_is_wrong_fails_on_all_ranks_and_the_next_op_works():
    run_ranks(_one_member_is_wrong, 2, timeout_s=60)
