"""DistributedGradientTape."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks


def _check_tape() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, ranks = hvd.rank(), hvd.size()
    mean = sum(range(1, ranks + 1)) / ranks
    total = sum(range(1, ranks + 1))
    x, table, other = tf.Variable([2.0, 3.0]), tf.Variable(tf.ones([4, 2])), tf.Variable(1.0)

    def loss():
        return (rank + 1.0) * (tf.reduce_sum(x * x) + tf.reduce_sum(tf.gather(table, [rank, 3, 3])))

    rows = np.zeros((4, 2))
    for r in range(ranks):
        rows[r] += r + 1
        rows[3] += 2 * (r + 1)

    def check(gradients, scale):
        np.testing.assert_allclose(gradients["x"], [4.0 * scale, 6.0 * scale], rtol=1e-3)
        nested, (none,) = gradients["rest"]
        np.testing.assert_allclose(tf.convert_to_tensor(nested), rows * scale / total, rtol=1e-3)
        assert none is None

    sources = {"x": x, "rest": [table, (other,)]}

    def wrapped_after(**options):
        with tf.GradientTape() as tape:
            value = loss()
        tape = hvd.DistributedGradientTape(tape, **options)
        assert isinstance(tape, tf.GradientTape)
        return tape.gradient(value, sources)

    def wrapped_inside(**options):
        with tf.GradientTape() as tape:
            value = loss()
            tape = hvd.DistributedGradientTape(tape, **options)
        return tape.gradient(value, sources, use_generic_names=True)

    def wrapped_before(**options):
        with hvd.DistributedGradientTape(tf.GradientTape(), **options) as tape:
            value = loss()
        return tape.gradient(value, sources)

    for way in (wrapped_after, wrapped_inside, wrapped_before):
        for run in (way, tf.function(way)):
            check(run(), mean)
            check(run(op=hvd.Sum), total)
            check(run(sparse_as_dense=True, gradient_predivide_factor=2.0), mean)
            check(run(compression=hvd.Compression.fp16), mean)

    # The sparse gradient stays sparse unless asked otherwise.
    assert isinstance(wrapped_after()["rest"][0], tf.IndexedSlices)
    assert not isinstance(wrapped_after(sparse_as_dense=True)["rest"][0], tf.IndexedSlices)

    with tf.GradientTape(persistent=True) as tape:
        value, square = loss(), x * x
    tape = hvd.DistributedGradientTape(tape)
    np.testing.assert_allclose(tape.gradient(value, x), [4.0 * mean, 6.0 * mean], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(value, [x])[0], [4.0 * mean, 6.0 * mean], rtol=1e-6)
    np.testing.assert_allclose(tape.jacobian(square, x), np.diag([4.0, 6.0]))
    seed = tf.constant([1.0, 0.0])
    np.testing.assert_allclose(tape.gradient(square, x, seed), [4.0, 0.0])
    zeros = tape.gradient(square, other, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    assert zeros.numpy() == 0.0

    # A source that is registered as local keeps its own gradient.
    for scale_local, expected in ((True, (rank + 1) * 4.0 / ranks), (False, (rank + 1) * 4.0)):
        with tf.GradientTape() as tape:
            value = loss()
        tape = hvd.DistributedGradientTape(tape, scale_local_gradients=scale_local)
        tape.register_local_source(x)
        np.testing.assert_allclose(tape.gradient(value, x)[0], expected, rtol=1e-6)


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_tape_reduces_gradients(size):
    run_ranks(_check_tape, size, timeout_s=120)


def _names_differ_by_rank() -> None:
    """Rank 0 has made other variables before, so that automatic names differ."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    variable = tf.Variable(float(hvd.rank()), name=f"of_rank_{hvd.rank()}")

    @tf.function
    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = variable * variable
        return tape.gradient(loss, [variable], use_generic_names=True)

    assert step()[0].numpy() == 1.0  # the mean of 0 and 2


def test_generic_names_match_sources_by_place():
    run_ranks(_names_differ_by_rank, 2)


def _training_equals_the_whole_batch() -> list[float]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    random = np.random.default_rng(0)
    features = random.normal(size=(12, 3)).astype(np.float32)
    labels = (features @ [1.0, -2.0, 3.0]).astype(np.float32)
    weights = tf.Variable(tf.fill([3], float(hvd.rank())))
    hvd.broadcast_variables([weights], root_rank=0)

    @tf.function
    def step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
        tape = hvd.DistributedGradientTape(tape)
        weights.assign_sub(0.1 * tape.gradient(loss, weights))

    mine = slice(hvd.rank(), None, hvd.size())
    for _ in range(20):
        step(tf.constant(features[mine]), tf.constant(labels[mine]))
    return weights.numpy().tolist()


def test_training_with_the_tape_equals_one_process_with_the_whole_batch():
    alone = run_ranks(_training_equals_the_whole_batch, 1)[0]
    for weights in run_ranks(_training_equals_the_whole_batch, 3):
        np.testing.assert_allclose(weights, alone, rtol=1e-5)


def _partial() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    mean = (size + 1) / 2
    dense = tf.keras.layers.Dense
    shared = dense(1, use_bias=False, kernel_initializer="ones", name="shared")
    own = dense(1, use_bias=False, kernel_initializer="ones", name="own")
    x = tf.ones([1, 1])

    def step(layers, persistent=False, **options):
        # The layer of the rank's own has no variables before its first call.
        with tf.GradientTape(persistent=persistent) as tape:
            loss = (rank + 1.0) * tf.reduce_sum(shared(x) + own(x))
        tape = hvd.PartialDistributedGradientTape(tape, local_layers=layers, **options)
        assert isinstance(tape, tf.GradientTape)
        sources = {"own": own.trainable_variables, "rest": (shared.trainable_variables[0],)}
        gradients = tape.gradient(loss, sources)
        return tape, loss, sources, gradients

    for scale, expected in ((True, (rank + 1) / size), (False, rank + 1)):
        for layers in (own, [own]):
            tape, _, sources, got = step(layers, scale_local_gradients=scale)
            np.testing.assert_allclose(got["own"][0], [[expected]], rtol=1e-6)
            np.testing.assert_allclose(got["rest"][0], [[mean]], rtol=1e-6)
            for arguments in ((), (got,), (got, sources)):
                local, rest = tape.get_local_and_global_gradients(*arguments)
                assert len(local) == len(rest) == 1
                np.testing.assert_allclose(local[0], got["own"][0])
                np.testing.assert_allclose(rest[0], got["rest"][0])

    # In a function; and a persistent tape, asked twice.
    function = tf.function(lambda: step([own])[3])
    for got in (function(), function()):
        np.testing.assert_allclose(got["own"][0], [[(rank + 1) / size]], rtol=1e-6)
        np.testing.assert_allclose(got["rest"][0], [[mean]], rtol=1e-6)
    tape, loss, sources, got = step([own], persistent=True, groups=1)
    again = tape.gradient(loss, sources["rest"][0])
    np.testing.assert_allclose(again, got["rest"][0])
    local, rest = tape.get_local_and_global_gradients()
    assert local == [] and rest[0] is again

    # Without local layers it is the whole tape; more sources may be made local.
    tape = step(None)[0]
    assert len(tape.get_local_and_global_gradients()[1]) == 2
    tape.register_local_source(shared.trainable_variables[0])
    assert len(tape.get_local_and_global_gradients()[0]) == 1
    with pytest.raises(ValueError, match="1 gradients for 2 sources"):
        tape.get_local_and_global_gradients([tf.constant(1.0)])
    fresh = hvd.PartialDistributedGradientTape(tf.GradientTape())
    with pytest.raises(ValueError, match=r"call gradient\(\) first"):
        fresh.get_local_and_global_gradients()


@pytest.mark.smoke
def test_a_partial_tape_leaves_the_gradients_of_local_layers():
    run_ranks(_partial, 2)


def _adasum() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    # What is parallel is averaged, what is orthogonal added.
    x, y = tf.Variable([1.0, 1.0]), tf.Variable(tf.zeros([2, 2]))
    with tf.GradientTape(persistent=True) as tape:
        parallel = (hvd.rank() + 1.0) * tf.reduce_sum(x)
        orthogonal = tf.reduce_sum(tf.gather(y, [hvd.rank()]))
    tape = hvd.DistributedGradientTape(tape, op=hvd.Adasum, sparse_as_dense=True)
    np.testing.assert_allclose(tape.gradient(parallel, x), [1.5, 1.5])
    np.testing.assert_allclose(tape.gradient(orthogonal, y), np.ones((2, 2)))


def test_a_tape_with_adasum():
    run_ranks(_adasum, 2)
