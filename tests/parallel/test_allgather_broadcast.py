"""allgather, broadcast, barrier and the ops that read rank and size."""

from __future__ import annotations

import functools
import time
from pathlib import Path

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate

DTYPES = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


def _rows(rank: int, rows: int, rest: tuple[int, ...]) -> np.ndarray:
    random = np.random.default_rng([rank, rows, *rest])
    return random.integers(0, 2, (rows, *rest)).astype(np.float64)


def _check_allgather() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    def gathered(mine: np.ndarray, dtype: str) -> tf.Tensor:
        result = hvd.allgather(tf.cast(tf.constant(mine), dtype))
        assert result.dtype == dtype
        return tf.cast(result, tf.float64)

    numbers_of_rows = (
        [2] * size,  # all alike
        list(range(size)),  # none on rank 0
        [0] * size,
        [5 if r == size - 1 else 1 for r in range(size)],
    )
    for mode in MODES:
        for dtype in DTYPES if mode == "eager" else ("int32", "float32", "bool"):
            for rows in numbers_of_rows:
                for rest in ((), (3,), (2, 1), (0,)):
                    all_rows = [_rows(r, rows[r], rest) for r in range(size)]
                    result = evaluate(mode, functools.partial(gathered, all_rows[rank], dtype))
                    np.testing.assert_array_equal(
                        result, np.concatenate(all_rows), f"{mode} {dtype} {rows} {rest}"
                    )
    np.testing.assert_array_equal(hvd.allgather([rank]), np.arange(size))


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_allgather_joins_rows_in_rank_order(size):
    run_ranks(_check_allgather, size, timeout_s=120)


def _check_broadcast() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    def sent(mine: np.ndarray, dtype: str, root: int) -> tf.Tensor:
        result = hvd.broadcast(tf.cast(tf.constant(mine), dtype), root)
        assert result.dtype == dtype
        return tf.cast(result, tf.float64)

    for mode in MODES:
        for dtype in DTYPES if mode == "eager" else ("int32", "float32", "bool"):
            for shape in ((), (0,), (1,), (4, 3)):
                for root in range(size):
                    inputs = [_rows(r, 1, shape)[0] for r in range(size)]
                    result = evaluate(mode, functools.partial(sent, inputs[rank], dtype, root))
                    np.testing.assert_array_equal(
                        result, inputs[root], f"{mode} {dtype} {shape} root {root}"
                    )
    assert hvd.broadcast([rank + 0.5], size - 1).numpy().tolist() == [size - 0.5]


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_broadcast_gives_all_the_roots_tensor(size):
    run_ranks(_check_broadcast, size, timeout_s=120)


def _slices_are_refused() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for mode in MODES:
        for kind, call in (
            ("allgather", hvd.allgather),
            ("broadcast", lambda slices: hvd.broadcast(slices, 0)),
            ("alltoall", hvd.alltoall),
            ("reducescatter", hvd.reducescatter),
            ("grouped_allgather", lambda slices: hvd.grouped_allgather([slices])),
            ("grouped_reducescatter", lambda slices: hvd.grouped_reducescatter([slices])),
        ):
            with pytest.raises(NotImplementedError, match=f"^{kind} of IndexedSlices"):
                evaluate(
                    mode,
                    lambda call=call: call(tf.IndexedSlices(tf.ones([2, 2]), [0, 3], [4, 2])),
                )


def test_slices_are_refused_where_they_would_become_dense():
    run_ranks(_slices_are_refused, 1)


def _check_rank_ops() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    for mode in MODES:
        values = evaluate(
            mode,
            lambda: [
                hvd.rank_op(),
                hvd.local_rank_op(),
                hvd.size_op(),
                hvd.local_size_op(),
                hvd.process_set_included_op(),
            ],
        )
        assert values == [hvd.rank(), hvd.local_rank(), hvd.size(), hvd.local_size(), 1], mode
    assert hvd.rank_op(name="r").numpy() == hvd.rank()
    assert hvd.size_op(0, "s").numpy() == hvd.size()


def test_rank_and_size_as_ops():
    run_ranks(_check_rank_ops, 2)


def _graph_of_another_rank(folder: str) -> None:
    """Nothing that was true where the graph was made is a constant in it."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    first = hvd.ProcessSet([0])
    hvd.init(process_sets=[first])
    tf1 = tf.compat.v1
    path = f"{folder}/graph.meta"
    names = ("rank", "local_rank", "size", "local_size", "included")
    if hvd.rank() == 0:
        with tf.Graph().as_default():
            hvd.rank_op(name="rank")
            hvd.local_rank_op(name="local_rank")
            hvd.size_op(name="size")
            hvd.local_size_op(name="local_size")
            hvd.process_set_included_op(first.process_set_id, name="included")
            tf1.train.export_meta_graph(path)
    hvd.barrier()
    with tf.Graph().as_default(), tf1.Session() as session:
        tf1.train.import_meta_graph(path)
        got = session.run([f"{name}:0" for name in names])
    rank = hvd.rank()
    assert got == [rank, hvd.local_rank(), hvd.size(), hvd.local_size(), 1 - rank]
    assert hvd.local_rank() == rank  # so that the two ranks have different numbers


def _sizes_of_a_larger_job(path: str, export: bool) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    tf1 = tf.compat.v1
    with tf.Graph().as_default(), tf1.Session() as session:
        if export:
            hvd.size_op(name="size")
            hvd.local_size_op(name="local_size")
            tf1.train.export_meta_graph(path)
        else:
            tf1.train.import_meta_graph(path)
            assert session.run(["size:0", "local_size:0"]) == [hvd.size(), hvd.local_size()]


def test_a_graph_gives_the_numbers_of_the_rank_and_job_that_run_it(tmp_path):
    run_ranks(_graph_of_another_rank, 2, str(tmp_path))
    path = str(tmp_path / "sizes.meta")
    run_ranks(_sizes_of_a_larger_job, 1, path, True)
    run_ranks(_sizes_of_a_larger_job, 2, path, False)


def _size_op_of_one_graph_after_each_init() -> list[int]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    seen = []
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        total = hvd.allreduce(1.0, op=hvd.Sum)
        for _ in range(5):
            seen.append(int(session.run(total)))
            hvd.shutdown()
            assert not hvd.is_initialized()
            hvd.init()
    return seen


def test_a_graph_works_again_after_shutdown_and_init():
    assert run_ranks(_size_op_of_one_graph_after_each_init, 2) == [[2] * 5] * 2


def _barrier_sees_what_came_before(folder: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for mode in MODES:
        if hvd.rank() == 1:
            time.sleep(0.2)
            Path(folder, mode).touch()
        if mode == "session":
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                session.run(hvd.barrier())
        elif mode == "function":
            tf.function(lambda: hvd.barrier() and None, autograph=False)()
        else:
            assert hvd.barrier() is None
        assert Path(folder, mode).exists(), mode


def test_barrier_waits_for_all_ranks(tmp_path):
    run_ranks(_barrier_sees_what_came_before, 2, str(tmp_path))
