"""`tf.IndexedSlices` over the ranks, gathered and by HOROVOD_SPARSE_AUTO_DENSE, against NumPy."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.knobs import SPARSE_AUTO_DENSE as AUTO
from tests.parallel.knobs import environment
from tests.parallel.modes import MODES, evaluate

INTEGERS = ("uint8", "int8", "uint16", "int16", "int32", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
# One rounding of each row of each rank, and one of their sum.
TOLERANCES = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 1e-6, "float64": 1e-14}


@dataclass(frozen=True)
class Case:
    """Slices of all ranks.

    Attributes:
      dtype: of the values.
      height: rows of the dense tensor.
      values: of each rank; small whole numbers, so that sums are exact in every dtype.
      indices: of each rank.
      knows_shape: whether the slices have a dense_shape.
    """

    dtype: str
    height: int
    values: list[np.ndarray]
    indices: list[np.ndarray]
    knows_shape: bool

    def slices(self, rank: int) -> Any:
        """This rank's, whose shapes a graph does not know."""
        import tensorflow as tf

        def hidden(array: np.ndarray, dtype: Any) -> Any:
            return tf.compat.v1.placeholder_with_default(tf.cast(array, dtype), shape=None)

        width = self.values[0].shape[1:]
        return tf.IndexedSlices(
            hidden(self.values[rank], self.dtype),
            hidden(self.indices[rank], self.indices[rank].dtype),
            [self.height, *width] if self.knows_shape else None,
        )

    def total(self) -> np.ndarray:
        """The sum over rows and ranks, dense."""
        return self.laid_out(np.concatenate(self.values), np.concatenate(self.indices))

    def laid_out(self, values: np.ndarray, indices: np.ndarray) -> np.ndarray:
        """Adds rows to a dense array of float64."""
        dense = np.zeros((self.height, *values.shape[1:]))
        np.add.at(dense, indices, values.astype(np.float64))
        return dense

    def gathered_bytes(self, wire_bytes: int) -> int:
        """What every rank would receive."""
        return sum(
            len(set(i.tolist())) * (int(np.prod(v.shape[1:])) * wire_bytes + i.dtype.itemsize)
            for v, i in zip(self.values, self.indices)
        )

    def dense_bytes(self, wire_bytes: int) -> int:
        """The dense tensor, and a byte for each row."""
        return self.height * (int(np.prod(self.values[0].shape[1:])) * wire_bytes + 1)


def draw(seed: int, size: int) -> Case:
    """Draws a case: rows, how many have one index, and which ranks have none."""
    random = np.random.default_rng([seed, size])
    dtype = str(random.choice(INTEGERS + FLOATS))
    width = [(), (3,), (2, 2), (0,)][random.choice(4, p=[0.3, 0.4, 0.25, 0.05])]
    height = int(random.integers(1, 9))
    index = str(random.choice(["int32", "int64"]))
    rows = random.choice([0, 1, 3, 12], size, p=[0.25, 0.15, 0.3, 0.3])
    if seed % 10 == 0:
        rows[:] = 0
    return Case(
        dtype=dtype,
        height=height,
        values=[random.integers(0, 4, (n, *width)).astype(np.float64) for n in rows],
        indices=[random.integers(0, height, n).astype(index) for n in rows],
        knows_shape=bool(random.random() < 0.8),
    )


def _check_random_cases(auto: str, seeds: range, modes: tuple[str, ...]) -> tuple[str, int]:
    """Returns a digest of all results, and how many cases went into dense tensors."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    rank, size = hvd.rank(), hvd.size()
    digest, dense_ones = hashlib.sha256(), 0
    cases = {seed: draw(seed, size) for seed in seeds}
    for mode in modes:

        def build() -> list[Any]:
            return [
                (result.values, result.indices)
                for seed, case in cases.items()
                for op in (hvd.Sum, hvd.Average)
                for result in [hvd.allreduce(case.slices(rank), op=op, name=f"{seed}{op.name}")]
            ]

        results = iter(evaluate(mode, build))
        for seed, case in cases.items():
            total = case.total()
            for op in (hvd.Sum, hvd.Average):
                values, indices = next(results)
                where = f"{mode}, seed {seed}, {op.name}, rank {rank} of {size}: {case}"
                digest.update(values.tobytes() + indices.tobytes())
                assert values.dtype == tf.as_dtype(case.dtype).as_numpy_dtype, where
                assert indices.dtype == case.indices[0].dtype, where
                assert values.shape[1:] == case.values[0].shape[1:], where
                assert len(values) == len(indices), where
                assert set(indices) == set(np.concatenate(case.indices)), where
                want = total
                if op == hvd.Average:
                    want = total / size if case.dtype in FLOATS else np.trunc(total / size)
                np.testing.assert_allclose(
                    case.laid_out(values, indices),
                    want,
                    rtol=TOLERANCES.get(case.dtype, 0) if op == hvd.Average else 0,
                    err_msg=where,
                )
                wire = tf.as_dtype(case.dtype).size
                if (
                    auto == "1"
                    and case.knows_shape
                    and case.gathered_bytes(wire) > case.dense_bytes(wire)
                ):
                    dense_ones += 1
                    np.testing.assert_array_equal(indices, np.unique(indices), where)
                elif op == hvd.Sum or case.dtype in FLOATS:
                    once = [list(dict.fromkeys(of_rank)) for of_rank in case.indices]
                    assert indices.tolist() == [i for of_rank in once for i in of_rank], where
    return digest.hexdigest(), dense_ones


@pytest.mark.smoke
@pytest.mark.parametrize("auto", ["0", "1"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_random_slices_equal_numpy(size, auto):
    seen = run_ranks(_check_random_cases, size, auto, range(30), ("eager",), timeout_s=120)
    assert len(set(seen)) == 1
    assert (seen[0][1] > 10) == (auto == "1"), "both ways must have been taken"


@pytest.mark.parametrize("auto", ["0", "1"])
def test_random_slices_equal_numpy_in_graphs(auto):
    seen = run_ranks(_check_random_cases, 3, auto, range(100, 106), MODES[1:], timeout_s=240)
    assert len(set(seen)) == 1
    assert (seen[0][1] > 5) == (auto == "1")


def _digest_of_floats(transport: str, auto: str) -> str:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow.collectives import combine

    with environment(**{AUTO: auto, "HOROVOD_TRANSPORT": transport}):
        hvd.init()
    digest = hashlib.sha256()
    for seed in range(12):
        random = np.random.default_rng([seed, hvd.rank()])
        rows = int(random.integers(0, 400))
        values = tf.cast(random.normal(size=(rows, 17)), ("float32", "bfloat16")[seed % 2])
        # Many times one index, so that the order in which they are added shows.
        slices = tf.IndexedSlices(values, random.integers(0, 30, rows), [30, 17])
        for op in (hvd.Sum, hvd.Average):
            result = combine(slices, op, prescale_factor=0.3, name="x")
            digest.update(result.values.numpy().tobytes() + result.indices.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("auto", ["0", "1"])
def test_the_same_bits_on_every_rank_transport_and_run(auto):
    seen = [
        digest
        for transport in ("shm", "tcp", "shm")
        for digest in run_ranks(_digest_of_floats, 3, transport, auto)
    ]
    assert len(seen) == 9 and len(set(seen)) == 1


def _names_of_calls() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _raw

    with environment(**{AUTO: "true"}):
        hvd.init()
    rank, size = hvd.rank(), hvd.size()
    names: list[str] = []
    raw = _raw.call

    def call(op_type: str, *inputs: Any, name: str, **attrs: Any) -> Any:
        names.append(name)
        return raw(op_type, *inputs, name=name, **attrs)

    def taken(indices: list[int], shape: list[int] | None, **options: Any) -> str:
        names.clear()
        slices = tf.IndexedSlices(tf.ones([len(indices), 4]), tf.constant(indices, tf.int32), shape)
        result = hvd.allreduce(slices, op=hvd.Sum, name="x", **options)
        assert len(set(hvd.allgather([len(result.indices)]).numpy())) == 1
        assert names.pop() is None  # of the allgather
        assert names.pop(0) == "x.bytes"
        return {("x.values", "x.indices"): "gathered", ("x.dense", "x.rows"): "dense"}[tuple(names)]

    _raw.call = call
    try:
        all_rows = list(range(10))
        assert taken(all_rows, [10, 4]) == "dense"
        assert taken(all_rows[:1], [10, 4]) == "gathered"
        # One rank has all rows, the others none.
        assert taken(all_rows if rank == 0 else [], [10, 4]) == "dense"
        assert taken(all_rows if rank == 0 else [], [13, 4]) == "gathered"
        # The same index many times is one row.
        assert taken([7] * 50, [10, 4]) == "gathered"
        # A float16 row counts 8 bytes, its index 4; so dense is 90 bytes and not 170.
        few = list(range(8 if rank == 0 else 0))
        assert taken(few, [10, 4]) == "gathered"
        assert taken(few, [10, 4], compression=hvd.Compression.fp16) == "dense"
        # One rank cannot: it does not know the shape, or has a row outside.
        assert taken(all_rows, None if rank == size - 1 else [10, 4]) == "gathered"
        assert taken(all_rows, None) == "gathered"
        for outside in (10, -1):
            last = outside if rank == size - 1 else 9
            assert taken([*range(9), last], [10, 4]) == "gathered"
        # A later choice under one name is free.
        assert taken(all_rows, [10, 4]) == "dense"
    finally:
        _raw.call = raw


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_choose_the_way_of_fewer_bytes_together(size):
    run_ranks(_names_of_calls, size)


def _check_factors(auto: str) -> None:
    """Integers are the very ones of the dense allreduce."""
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow.collectives import combine

    with environment(**{AUTO: auto}):
        hvd.init()
    for mode in ("eager", "session"):
        for dtype in ("int8", "int64", "float16"):
            for op in (hvd.Sum, hvd.Average):
                for before, after in (
                    (0.5, 1.0),
                    (1.0, 3.0),
                    (1 / 3, 3.0),
                    (0.7, -2.0),
                    (9.0, 9.0),
                ):

                    def build(dtype=dtype, op=op, before=before, after=after):
                        random = np.random.default_rng(hvd.rank())
                        values = tf.cast(random.integers(-3, 4, (20, 2)), dtype)
                        slices = tf.IndexedSlices(values, random.integers(0, 4, 20), [4, 2])
                        dense = tf.cast(tf.convert_to_tensor(slices), dtype)
                        factors = {"prescale_factor": before, "postscale_factor": after}
                        got = combine(slices, op, name="slices", **factors)
                        want = combine(dense, op, name="dense", **factors)
                        return tf.convert_to_tensor(got), want

                    got, want = evaluate(mode, build)
                    np.testing.assert_allclose(
                        got.astype(np.float64),
                        want.astype(np.float64),
                        rtol=TOLERANCES.get(dtype, 0),
                        atol=10 * TOLERANCES.get(dtype, 0),
                        err_msg=f"{mode} {dtype} {op.name} {before} {after}",
                    )


@pytest.mark.parametrize("auto", ["0", "1"])
def test_factors_and_averages_are_those_of_dense_tensors(auto):
    run_ranks(_check_factors, 3, auto, timeout_s=180)


def _check_precision(auto: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    ones = tf.IndexedSlices(tf.ones([300, 2], tf.bfloat16), tf.zeros([300], tf.int64), [1, 2])
    # In bfloat16, 256 + 1 is 256.
    np.testing.assert_array_equal(
        hvd.allreduce(ones, name="ones").values.numpy().astype(np.float32).sum(axis=0), [300, 300]
    )

    def build() -> tf.Tensor:
        tenth = tf.IndexedSlices(tf.fill([30, 2], 0.1), tf.range(30) % 3, [3, 2])
        result = hvd.allreduce(tenth, compression=hvd.Compression.fp16, name="tenth")
        return tf.convert_to_tensor(result)

    for mode in MODES:
        result = evaluate(mode, build)
        assert result.dtype == np.float32
        # The duplicates are added in float32, then the sum is rounded: 1.0 is no tenths of float16.
        np.testing.assert_array_equal(result, np.full((3, 2), 1.0, np.float32))


@pytest.mark.parametrize("auto", ["0", "1"])
def test_rows_are_added_in_float32_before_they_are_rounded(auto):
    run_ranks(_check_precision, 2, auto)


def _check_bools_and_lists() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with pytest.raises(ValueError, match=r"hvd.init\(\)"):
        hvd.allreduce(tf.IndexedSlices(tf.ones([1]), tf.constant([0])))
    with environment(**{AUTO: "1"}):
        hvd.init()
    size = hvd.size()
    flags = tf.IndexedSlices(tf.constant([True, False, True]), tf.constant([1, 1, 2]), [3])
    gathered = hvd.allreduce(flags, op=hvd.Sum, name="flags")
    assert gathered.values.numpy().tolist() == [True, False, True] * size
    assert gathered.indices.numpy().tolist() == [1, 1, 2] * size
    with pytest.raises(NotImplementedError, match="IndexedSlices 'flags': bool has no average"):
        hvd.allreduce(flags, name="flags")
    for factor in ("prescale_factor", "postscale_factor"):
        with pytest.raises(NotImplementedError, match=f"'flags': .*{factor}=2.0"):
            hvd.allreduce(flags, op=hvd.Sum, name="flags", **{factor: 2.0})
    with pytest.raises(ValueError, match=r"process_set=0; pass the hvd.ProcessSet"):
        hvd.allreduce(flags, op=hvd.Sum, process_set=0)
    for op in (hvd.Min, hvd.Max, hvd.Product, hvd.Adasum):
        with pytest.raises(NotImplementedError, match=f"'x': op is {op.name}, but slices can only"):
            hvd.allreduce(tf.IndexedSlices(tf.ones([1]), tf.constant([0])), op=op, name="x")
    # No name, no dense_shape, and Python's lists.
    lists = hvd.allreduce(tf.IndexedSlices([1.0, 2.0], [3, 3]), op=hvd.Sum)
    assert lists.values.numpy().tolist() == [3.0] * size and lists.dense_shape is None
    assert lists.indices.numpy().tolist() == [3] * size


def test_what_slices_cannot_have_is_said_by_name():
    run_ranks(_check_bools_and_lists, 2)


def _heights_differ() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: "1"}):
        hvd.init()
    height = 4 + hvd.rank()
    slices = tf.IndexedSlices(tf.ones([4, 2]), tf.range(4), [height, 2])
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"x\.dense.*\[5, 2\]"):
        hvd.allreduce(slices, name="x")


def test_dense_shapes_that_differ_are_an_error_that_names_them():
    run_ranks(_heights_differ, 2)


def _refused(values: list[str]) -> str:
    import horovod.tensorflow as hvd

    mine = values[int(os.environ["HOROVOD_RANK"])]
    with environment(**{AUTO: mine}), pytest.raises(ValueError, match=AUTO) as error:
        hvd.init()
    return str(error.value)


def test_a_knob_that_is_no_switch_is_refused():
    for text in run_ranks(_refused, 2, ["maybe"] * 2):
        assert f"{AUTO} is 'maybe'" in text and "true" in text


def test_a_knob_that_differs_between_ranks_is_refused():
    for text in run_ranks(_refused, 2, ["0", "on"]):
        assert f"rank 1 has {AUTO}=True, rank 0 has False" in text


def _one_rank_has_an_index_too_few(auto: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with environment(**{AUTO: auto}):
        hvd.init()
    rows = tf.IndexedSlices(tf.ones([3, 2]), tf.range(2 if hvd.rank() == 0 else 3), [5, 2])
    if hvd.rank() == 0:
        refused = tf.errors.InvalidArgumentError
        with pytest.raises(refused, match=r"'x': values have shape \(3, 2\)"):
            hvd.allreduce(rows, name="x")
    else:
        with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 0 .*one index for each"):
            hvd.allreduce(rows, name="x")
    assert hvd.allreduce(1, op=hvd.Sum, name="y").numpy() == hvd.size()
    with tf.Graph().as_default(), pytest.raises(tf.errors.InvalidArgumentError, match="one index"):
        hvd.allreduce(tf.IndexedSlices(tf.ones([3, 2]), tf.range(2)), name="x")


@pytest.mark.parametrize("auto", ["0", "1"])
def test_rows_without_an_index_are_refused_and_told(auto):
    run_ranks(_one_rank_has_an_index_too_few, 2, auto)
