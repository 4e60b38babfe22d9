"""allreduce against NumPy: every dtype, op and shape, in every mode."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate

INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 0, 3), (1031,))
OPS = ("Average", "Sum", "Min", "Max", "Product")


def _input(rank: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small whole numbers, so that every sum and product is exact in every dtype."""
    low = 0 if dtype == "bool" or dtype.startswith("u") else -2
    high = 2 if dtype == "bool" else 4
    random = np.random.default_rng([rank, *shape])
    return random.integers(low, high, shape).astype(np.float64)


def _expected(op: str, inputs: list[np.ndarray], dtype: str) -> np.ndarray:
    stacked = np.stack(inputs)
    if dtype == "bool":
        function = {"Sum": np.max, "Max": np.max, "Product": np.min, "Min": np.min}[op]
        return function(stacked, axis=0)
    if op == "Average":
        mean = stacked.sum(axis=0) / len(inputs)
        return mean if dtype in FLOATS else np.trunc(mean)
    return {"Sum": np.sum, "Min": np.min, "Max": np.max, "Product": np.prod}[op](stacked, axis=0)


def _tolerance(dtype: str) -> float:
    """Two roundings in the dtype."""
    return {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 3e-7, "float64": 5e-16}.get(dtype, 0)


def _check_all_dtypes(modes: tuple[str, ...]) -> int:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()

    def reduced(mine: np.ndarray, dtype: str, op: str) -> tf.Tensor:
        tensor = tf.cast(tf.constant(mine), dtype)
        return tf.cast(hvd.allreduce(tensor, op=getattr(hvd, op)), tf.float64)

    cases = 0
    for mode in modes:
        for dtype in ("bool", *INTEGERS, *FLOATS):
            for op in OPS:
                if (dtype, op) == ("bool", "Average"):
                    continue
                for shape in SHAPES if mode == "eager" else SHAPES[:4]:
                    inputs = [_input(rank, shape, dtype) for rank in range(hvd.size())]
                    build = functools.partial(reduced, inputs[hvd.rank()], dtype, op)
                    np.testing.assert_allclose(
                        evaluate(mode, build),
                        _expected(op, inputs, dtype),
                        rtol=_tolerance(dtype),
                        atol=0,
                        err_msg=f"{mode} {dtype} {op} {shape} on rank {hvd.rank()}",
                    )
                    cases += 1
    return cases


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_allreduce_equals_numpy(size):
    counts = run_ranks(_check_all_dtypes, size, ("eager",), timeout_s=120)
    assert counts == [54 * len(SHAPES)] * size


@pytest.mark.parametrize("mode", MODES[1:])
def test_allreduce_equals_numpy_in_graphs(mode):
    counts = run_ranks(_check_all_dtypes, 2, (mode,), timeout_s=240)
    assert counts == [54 * 4] * 2


def _check_factors() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    ranks = hvd.size()
    total = ranks * (ranks + 1) // 2
    for mode in MODES:

        def build(dtype, op, before=0.5, after=4.0):
            mine = tf.cast(tf.fill([3], hvd.rank() + 1), dtype)
            return hvd.allreduce(mine, op=op, prescale_factor=before, postscale_factor=after)

        for dtype in FLOATS[2:]:
            result = evaluate(mode, functools.partial(build, dtype, hvd.Sum))
            np.testing.assert_allclose(result, np.full(3, 2.0 * total), rtol=1e-6)
            result = evaluate(mode, functools.partial(build, dtype, hvd.Average))
            np.testing.assert_allclose(result, np.full(3, 2.0 * total / ranks), rtol=1e-6)
        # Integers are summed first and multiplied once: no rank's half is lost.
        result = evaluate(mode, functools.partial(build, "int32", hvd.Sum, 0.5, 1.0))
        np.testing.assert_array_equal(result, np.full(3, int(total * 0.5)))


def test_factors_multiply_before_and_after():
    run_ranks(_check_factors, 3, timeout_s=120)


def _average_of_negatives() -> list[int]:
    import horovod.tensorflow as hvd

    hvd.init()
    return hvd.allreduce(np.array([-1 - hvd.rank(), 1 + hvd.rank()], np.int32)).numpy().tolist()


def test_average_of_integers_rounds_toward_zero():
    assert run_ranks(_average_of_negatives, 2) == [[-1, 1]] * 2  # -3 / 2 and 3 / 2


def _check_inputs() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    one = float(hvd.rank() + 1)
    ranks = hvd.size()
    total = ranks * (ranks + 1) / 2
    variable = tf.Variable([one])
    for value in (one, [one], np.array([one], np.float32), tf.constant([one]), variable, ((one,),)):
        result = hvd.allreduce(value, op=hvd.Sum)
        np.testing.assert_array_equal(result, np.full(np.shape(value), total))
        assert result.dtype == tf.float32
    assert hvd.allreduce(np.float64(one), op=hvd.Sum).dtype == tf.float64
    assert hvd.allreduce(hvd.rank(), op=hvd.Max).dtype == tf.int32
    # The old ways to say which reduction.
    assert hvd.allreduce(one, True).numpy() == total / ranks
    assert hvd.allreduce(one, average=False).numpy() == total
    assert hvd.mpi_ops._allreduce(one).numpy() == total
    assert hvd.allreduce(one, device_dense="/cpu:0", op=hvd.mpi_ops.Sum).numpy() == total
    np.testing.assert_allclose(
        hvd.allreduce(0.1, op=hvd.Sum, compression=hvd.Compression.fp16), 0.1 * ranks, rtol=1e-3
    )
    assert hvd.allreduce(0.1, compression=hvd.Compression.fp16).dtype == tf.float32
    assert hvd.allreduce(1, compression=hvd.Compression.fp16).dtype == tf.int32

    # Both kinds of variable of a compat.v1 graph.
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        sums = []
        for resource in (False, True):
            v1 = tf.compat.v1.get_variable(f"v{resource}", initializer=[one], use_resource=resource)
            sums.append(hvd.allreduce(v1, op=hvd.Sum))
            assert sums[-1].op.name == f"HorovodAllreduce_v{resource}_0"
        session.run(tf.compat.v1.global_variables_initializer())
        np.testing.assert_array_equal(session.run(sums), np.full((2, 1), total))


@pytest.mark.smoke
def test_allreduce_takes_whatever_becomes_a_tensor():
    run_ranks(_check_inputs, 2)


def _check_slices() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    ranks, rank = hvd.size(), hvd.rank()
    rows = [r + 1 for r in range(ranks)]  # rank 0 has one row, rank 1 two ...
    dense = np.zeros((5, 2), np.float32)
    for r in range(ranks):
        dense[: rows[r]] += r + 1

    for mode in MODES:

        def build(op, compression):
            mine = tf.IndexedSlices(
                tf.fill([rows[rank], 2], float(rank + 1)), tf.range(rows[rank]), [5, 2]
            )
            result = hvd.allreduce(mine, op=op, compression=compression, name="slices")
            assert isinstance(result, tf.IndexedSlices)
            return tf.math.unsorted_segment_sum(result.values, result.indices, 5)

        for compression in (hvd.Compression.none, hvd.Compression.fp16):
            total = evaluate(mode, functools.partial(build, hvd.Sum, compression))
            np.testing.assert_array_equal(total, dense)
            mean = evaluate(mode, functools.partial(build, hvd.Average, compression))
            np.testing.assert_allclose(mean, dense / ranks, rtol=1e-3)

    slices = tf.IndexedSlices(tf.ones([1, 2]), [0], [5, 2])
    with pytest.raises(NotImplementedError, match="IndexedSlices"):
        hvd.allreduce(slices, op=hvd.Max)
    for factor in ("prescale_factor", "postscale_factor"):
        for wrong in (
            lambda **factor: hvd.allreduce(slices, **factor),
            lambda **factor: hvd.mpi_ops._allreduce(slices, **factor),
            lambda **factor: hvd.grouped_allreduce([tf.ones([2]), slices], **factor),
        ):
            with pytest.raises(NotImplementedError, match=f"{factor}=2.0"):
                wrong(**{factor: 2.0})


@pytest.mark.smoke
def test_allreduce_of_slices_gathers_the_rows_of_all_ranks():
    run_ranks(_check_slices, 3, timeout_s=90)


def _new_name_every_step() -> tuple[int, int]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    x = tf.ones([10])

    def grown_kb(steps: range) -> int:
        before = _resident_kb()
        for step in steps:
            hvd.allreduce(x, name=f"step{step}")
        return _resident_kb() - before

    grown_kb(range(200))
    return grown_kb(range(200, 2200)), hvd.size()


def _resident_kb() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_a_new_name_in_every_eager_step_costs_no_memory():
    for grown_kb, _ in run_ranks(_new_name_every_step, 2):
        assert grown_kb < 20_000  # TensorFlow keeps about 46 KB for each value of an attribute


def _adasum() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    for mode in MODES:

        def build(mode=mode):
            orthogonal = tf.one_hot(rank, 2) * 3.0
            return [
                hvd.allreduce(orthogonal, op=hvd.Adasum, name=f"{mode}o"),
                *hvd.grouped_allreduce([orthogonal, [1.0]], op=hvd.Adasum, name=f"{mode}g"),
            ]

        got = evaluate(mode, build)
        # What is orthogonal is added, what is parallel averaged.
        assert [x.tolist() for x in got] == [[3.0, 3.0], [3.0, 3.0], [1.0]]
    with pytest.raises(NotImplementedError, match="slices can only be summed or averaged"):
        hvd.allreduce(tf.IndexedSlices([1.0], [0]), op=hvd.Adasum)


@pytest.mark.smoke
def test_adasum():
    run_ranks(_adasum, 2, timeout_s=60)
