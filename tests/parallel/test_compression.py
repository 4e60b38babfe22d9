"""Compression: what travels is cast by the op, and the bits are those of casts around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness import ranks
from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate

NAMES = ("fp16", "bf16")
WIRE_DTYPES = {"fp16": "float16", "bf16": "bfloat16"}


def _mine(rank: int, count: int, dtype: str) -> np.ndarray:
    """Numbers of many sizes, of which some are too large, too small or none in 16 bits."""
    random = np.random.default_rng(rank + 1)
    mine = random.standard_normal(count) * 10.0 ** random.integers(-9, 9, count)
    if count > 100:
        mine[[3, 40, 99]] = [np.inf, -0.0, 7e4]
    return mine.astype(dtype)


def _around(x: Any, wire_dtype: str, **options: Any) -> Any:
    """The same allreduce with casts around it."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    return tf.cast(hvd.allreduce(tf.cast(x, wire_dtype), name="around", **options), x.dtype)


def _check_bits() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    options = [
        {"op": hvd.Average},
        {"op": hvd.Sum, "prescale_factor": 0.3, "postscale_factor": 7.0},
        {"op": hvd.Max},
        {"op": hvd.Product},
    ]
    if hvd.size() & (hvd.size() - 1) == 0:
        options.append({"op": hvd.Adasum})
    for name in NAMES:
        compression = getattr(hvd.Compression, name)
        for dtype in ("float32", "float64"):
            for count in (0, 1, 1001, 300_001 if dtype == "float32" else 7):
                x = tf.constant(_mine(hvd.rank(), count, dtype))
                for extra in options:
                    got = hvd.allreduce(x, compression=compression, name="in the op", **extra)
                    want = _around(x, WIRE_DTYPES[name], **extra)
                    assert got.dtype == x.dtype
                    np.testing.assert_array_equal(got, want, f"{name} {dtype} {count} {extra}")
        for narrow in (tf.float16, tf.bfloat16, tf.int32, tf.bool):
            same = tf.cast(hvd.rank() + 1, narrow)
            got = hvd.allreduce(same, op=hvd.Max, compression=compression, name="as it is")
            assert got.dtype == narrow and float(got) == (1 if narrow == tf.bool else hvd.size())


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_bits_are_those_of_casts_around_the_op(size):
    run_ranks(_check_bits, size)


def test_the_bits_are_the_same_over_tcp():
    ranks.run_ranks(_check_bits, 3, env={"HOROVOD_TRANSPORT": "tcp"})


def _check_surfaces() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    fp16, bf16 = hvd.Compression.fp16, hvd.Compression.bf16
    mean = np.float32((hvd.size() + 1) / 2)
    fraction = (hvd.rank() + 1) * 1.001  # which no 16 bits hold
    for mode in MODES:
        for compression, wire_dtype in ((fp16, tf.float16), (bf16, tf.bfloat16)):

            def build(compression=compression):
                x = tf.fill([3], tf.constant(fraction, tf.float32))
                y = tf.fill([2], tf.constant(fraction, tf.float64))
                single = hvd.allreduce(x, compression=compression, name="single")
                group = hvd.grouped_allreduce([x, y, x], compression=compression, name="group")
                scattered = hvd.reducescatter(x[:2], compression=compression, name="rows")
                return [single, *group, scattered]

            values = evaluate(mode, build)
            want = _rounded_mean(hvd.size(), wire_dtype)
            for value, dtype in zip(values, "ffdff"):
                np.testing.assert_array_equal(value, np.full(value.shape, want, dtype))
            assert abs(want - mean) < 0.02

    # A graph holds no casts of it, and the gradient travels as the tensor does.
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [3])
        total = hvd.allreduce(x, compression=bf16, name="x")
        group = hvd.grouped_allreduce([x, x], compression=fp16, name="g")
        tf.gradients([total, *group], x)
        ops = graph.get_operations()
        assert not [op for op in ops if op.type == "Cast"]
        wire = [op.get_attr("wire_dtype") for op in ops if op.type.endswith("Allreduce")]
        assert sorted(wire) == [b"bfloat16"] * 2 + [b"float16"] * 2
    with tf.GradientTape() as tape:
        v = tf.Variable([1.0, 2.0])
        loss = tf.reduce_sum(hvd.allreduce(v, compression=fp16, name="taped") * fraction)
    want = _rounded_mean(hvd.size(), tf.float16)
    np.testing.assert_array_equal(tape.gradient(loss, v), np.full(2, want, np.float32))

    # A compressor of the program's own is asked, also one that is made of ours.
    class Loud(hvd.Compression.fp16):
        asked = 0

        @classmethod
        def compress(cls, tensor):
            cls.asked += 1
            return super().compress(tensor)

    np.testing.assert_array_equal(hvd.allreduce([fraction], compression=Loud, name="loud"), [want])
    np.testing.assert_array_equal(
        hvd.grouped_allreduce([[fraction]], compression=Loud, name="loud group"), [[want]]
    )
    assert Loud.asked == 2


def _rounded_mean(size: int, wire_dtype: Any) -> float:
    """The mean of (rank + 1) * 1.001 as it comes out of 16 bits."""
    import tensorflow as tf

    sent = [tf.cast(tf.constant((r + 1) * 1.001, tf.float32), wire_dtype) for r in range(size)]
    mean = sum(float(s) for s in sent) / size
    return float(tf.cast(tf.constant(mean, tf.float32), wire_dtype))


@pytest.mark.smoke
def test_every_surface_casts():
    run_ranks(_check_surfaces, 2)


def _refused_on_rank_1() -> list[tuple[str, str]]:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as keras

    hvd.init()
    plain, fp16 = tf.ones([2, 1]), hvd.Compression.fp16
    variable = tf.Variable(plain)
    slices = tf.IndexedSlices(plain, [0, 1], [4, 1])
    calls = [
        lambda c: hvd.allreduce(plain, compression=c, name="x"),
        lambda c: hvd.allreduce(plain, compression=c),
        lambda c: hvd.allreduce(slices, compression=c, name="s"),
        lambda c: hvd.allreduce([(None, variable), (plain, variable)], compression=c),
        lambda c: hvd.grouped_allreduce([plain], compression=c),
        lambda c: hvd.grouped_allreduce([plain, tf.ones([1], tf.int32)], compression=c, name="g"),
        lambda c: hvd.grouped_allreduce([plain, slices], compression=c, name="gs"),
        lambda c: hvd.reducescatter(plain, compression=c),
        lambda c: hvd.reducescatter(plain, compression=c, name="r"),
        lambda c: hvd.grouped_reducescatter([plain], compression=c, name="gr"),
        lambda c: keras.allreduce(1.0, compression=c, name="k"),
    ]
    errors = []
    for place, call in enumerate(calls):
        wrong = ["fp16", None, tf.float16, hvd.Compression][place % 4]
        try:
            call(wrong if hvd.rank() == 1 else fp16)
        except Exception as error:
            errors.append((type(error).__name__, str(error)))
        else:
            errors.append(("", f"call {place} was not refused"))
        assert float(hvd.allreduce(1.0, name="next")) == 1.0
    with tf.Graph().as_default(), pytest.raises(ValueError, match="compression=3; pass"):
        hvd.allreduce(tf.ones([1]), compression=3)
    np.testing.assert_array_equal(hvd.allreduce(plain, compression=fp16(), name="made"), plain)
    return errors


def test_what_is_no_compression_is_refused_and_told_to_the_others():
    other, wrong = run_ranks(_refused_on_rank_1, 2)
    for kind, text in wrong:
        assert kind == "ValueError" and "or a class with compress and decompress" in text, text
    for kind, text in other:
        assert kind == "FailedPreconditionError" and "compress and decompress" in text, text


def _check_disagreement() -> list[str]:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow import _raw

    hvd.init()
    compression = [hvd.Compression.none, hvd.Compression.bf16][hvd.rank()]
    texts = []
    for run in range(2):  # in full, and by the cache
        with pytest.raises(tf.errors.FailedPreconditionError) as error:
            hvd.allreduce([1.0], compression=compression, name="x")
        texts.append(error.value.message)
        same = hvd.allreduce([1.0], compression=hvd.Compression.bf16, op=hvd.Sum, name=f"y{run}")
        assert same.numpy() == [hvd.size()]
    # The raw op, with what Python would not send.
    for wrong in ({"reduce_op": int(hvd.Adasum)}, {}):
        tensor = [1.0] if wrong else [1]
        attrs = {"reduce_op": 1, "prescale_factor": 1.0, "postscale_factor": 1.0, **wrong}
        with pytest.raises(tf.errors.InvalidArgumentError, match="wire dtype"):
            _raw.call("HorovodAllreduce", tensor, wire_dtype="float16", **attrs)
    return texts


def test_ranks_must_compress_alike():
    for texts in run_ranks(_check_disagreement, 2):
        for text in texts:
            assert "'x'" in text and "the compression must match on all ranks" in text
            assert "rank 1 sent elements as bfloat16, rank 0 sent float32" in text
