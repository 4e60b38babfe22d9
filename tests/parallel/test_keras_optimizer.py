"""DistributedOptimizer around the optimizers of Keras 2 and Keras 3."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models

BATCH = 12


def _fit(make, distribute, arrays, batch_size: int, eagerly: bool = False) -> list:
    model = models.model()
    optimizer = make()
    if distribute:
        optimizer = distribute(optimizer)
    model.compile(optimizer, loss="mse", run_eagerly=eagerly)
    x, y = arrays
    model.fit(x, y, batch_size=batch_size, epochs=3, shuffle=False, verbose=0)
    return model.get_weights()


def _equals_the_whole_batch() -> None:
    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    x, y = models.data()
    mine = tuple(models.part_of(array, rank, size, BATCH) for array in (x, y))
    for kind, make in models.optimizers().items():
        whole = _fit(make, None, (x, y), BATCH, eagerly=True)
        dense = {"sparse_as_dense": True, "gradient_predivide_factor": 2.0}
        for options, eagerly in (({}, False), (dense, True)):
            parts = _fit(
                make,
                lambda optimizer: hvd.DistributedOptimizer(optimizer, **options),  # noqa: B023
                mine,
                BATCH // size,
                eagerly,
            )
            for part, all_at_once in zip(parts, whole):
                np.testing.assert_allclose(
                    part, all_at_once, rtol=2e-4, atol=2e-5, err_msg=f"{kind} {options}"
                )
            models.same_on_all_ranks(parts)


@pytest.mark.smoke
def test_training_equals_one_process_with_the_whole_batch():
    run_ranks(_equals_the_whole_batch, 2, timeout_s=240)


def _is_still_the_optimizer() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    x, y = models.data()
    for kind, make in models.optimizers().items():
        model = models.model()
        plain = make()
        model.compile(plain, loss="mse", run_eagerly=True)
        # Builds it, and gives its slots values.
        model.train_on_batch(x, y)
        before = [np.array(v) for v in _variables(plain)]
        wrapped = hvd.DistributedOptimizer(plain)
        assert isinstance(wrapped, type(plain)), kind
        assert type(wrapped).__module__ == type(plain).__module__
        assert type(wrapped).__qualname__ == type(plain).__qualname__
        assert type(wrapped).__name__ == type(plain).__name__
        assert wrapped.get_config() == plain.get_config()
        after = [np.array(v) for v in _variables(wrapped)]
        assert len(before) == len(after) >= 1
        for left, right in zip(before, after):
            np.testing.assert_array_equal(left, right)
        assert float(tf.convert_to_tensor(wrapped.learning_rate)) == float(
            tf.convert_to_tensor(plain.learning_rate)
        )
        # What is made of it is distributed as well.
        copy = type(wrapped).from_config(wrapped.get_config())
        assert type(copy) is type(wrapped)
        variable = tf.Variable([1.0, 2.0])
        copy.apply_gradients([(tf.constant([1.0, 1.0]) * (hvd.rank() - 0.5), variable)])
        if "AdamW" not in kind:
            np.testing.assert_array_equal(variable.numpy(), [1.0, 2.0])
        with pytest.raises(AttributeError, match="compile"):
            _ = wrapped.model
        reduced = wrapped._allreduce(tf.constant([float(hvd.rank())]))
        np.testing.assert_allclose(reduced, [0.5])
        assert wrapped._allreduce_grads([None, reduced], [variable, variable])[0] is None


def _variables(optimizer) -> list:
    found = optimizer.variables
    return list(found() if callable(found) and not isinstance(found, list) else found)


@pytest.mark.smoke
def test_it_is_still_the_optimizer_it_was_made_of():
    run_ranks(_is_still_the_optimizer, 2, timeout_s=120)


def _passes_by_hand() -> None:
    """w <- w - rate x gradient, with momentum 0.5; the gradient of pass p on rank r is r + p."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    for sgd in models.sgd_kinds():
        for passes in (1, 2, 3):
            for average in (False, True):
                for op in (hvd.Sum, hvd.Average):
                    # Functions take long to trace, so each case is run in one way.
                    function = passes == 2 or (passes, average, op) == (3, True, hvd.Sum)
                    _train_by_hand(sgd, passes, average, op, function, average)


def _train_by_hand(sgd, passes, average, op, function, counts_updates) -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd
    from horovod.tensorflow.keras import _override_points

    rank, size, rate, momentum = hvd.rank(), hvd.size(), 0.25, 0.5
    optimizer = hvd.DistributedOptimizer(
        sgd(rate, momentum=momentum),
        backward_passes_per_step=passes,
        average_aggregated_gradients=average,
        op=op,
        step_counts_updates=counts_updates,
    )
    w, idle = tf.Variable([1.0, -1.0]), tf.Variable(3.0)

    def step(gradient):
        optimizer.apply_gradients([(gradient * tf.ones([2]), w), (None, idle)])

    if function:
        step = tf.function(step)
    want, velocity, total = 1.0, 0.0, 0.0
    for number in range(1, 7):
        step(tf.constant(float(rank + number)))
        total += sum(range(number, number + size))
        if number % passes == 0:
            gradient = total / (passes if average else 1) / (size if op == hvd.Average else 1)
            velocity = momentum * velocity - rate * gradient
            want, total = want + velocity, 0.0
        case = f"{(passes, average, op, function, counts_updates, number)}"
        np.testing.assert_allclose(w.numpy(), [want, want - 2], rtol=1e-5, err_msg=case)
        slot = _override_points.momentum_slots(optimizer)[0]
        np.testing.assert_allclose(np.array(slot), [velocity] * 2, rtol=1e-5, err_msg=case)
        count = number // passes if counts_updates else number
        assert int(optimizer.iterations) == count, case
    assert idle.numpy() == 3.0


@pytest.mark.smoke
def test_several_backward_passes_by_hand():
    run_ranks(_passes_by_hand, 2, timeout_s=180)


def _passes_in_fit() -> None:
    """Two passes of half batches are one of a whole batch; slices and a second optimizer too."""
    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    x, y = models.data()
    mine = tuple(models.part_of(array, rank, size, BATCH) for array in (x, y))
    for kind, make in models.optimizers().items():
        if kind.split()[-1] not in ("momentum", "Adagrad"):
            continue  # Adam's step depends on the count of passes
        whole = _fit(make, None, (x, y), BATCH, eagerly=True)
        parts = _fit(
            make,
            lambda optimizer: hvd.DistributedOptimizer(
                optimizer, backward_passes_per_step=2, average_aggregated_gradients=True
            ),
            mine,
            BATCH // size // 2,
        )
        for part, all_at_once in zip(parts, whole):
            np.testing.assert_allclose(part, all_at_once, rtol=2e-4, atol=2e-5, err_msg=kind)
        models.same_on_all_ranks(parts)


def test_several_backward_passes_in_fit():
    run_ranks(_passes_in_fit, 2, timeout_s=180)


def _clipping() -> None:
    """Ranks have gradients 1 and 5; the clipped mean is not the mean of the clipped."""
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    mine = [1.0, 5.0][hvd.rank()]
    for sgd in models.sgd_kinds():
        for options in ({"clipvalue": 2.0}, {"clipnorm": 2.0}, {"global_clipnorm": 2.0}):
            optimizer = hvd.DistributedOptimizer(sgd(1.0, **options))
            w = tf.Variable([0.0])
            optimizer.apply_gradients([(tf.constant([mine]), w)])
            np.testing.assert_allclose(w.numpy(), [-2.0], rtol=1e-6, err_msg=str(options))
        # This rank's own gradient is clipped by a transformation.
        optimizer = hvd.DistributedOptimizer(
            sgd(1.0), transform_gradients=lambda pairs: [(tf.minimum(g, 2.0), v) for g, v in pairs]
        )
        w = tf.Variable([0.0])
        optimizer.apply_gradients([(tf.constant([mine]), w)])
        np.testing.assert_allclose(w.numpy(), [-1.5], rtol=1e-6)
        optimizer = hvd.DistributedOptimizer(sgd(1.0), transform_gradients=lambda pairs: [])
        with pytest.raises(ValueError, match="returned 0"):
            optimizer.apply_gradients([(tf.constant([mine]), w)])


@pytest.mark.smoke
def test_the_reduced_gradient_is_clipped():
    run_ranks(_clipping, 2)


def _odd_gradients() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank = hvd.rank()
    for sgd in models.sgd_kinds():
        for passes in (1, 2):
            optimizer = hvd.DistributedOptimizer(sgd(1.0), backward_passes_per_step=passes)
            empty, w, idle = tf.Variable(tf.zeros([0, 3])), tf.Variable([1.0]), tf.Variable(2.0)

            def step(o=optimizer, empty=empty, w=w, idle=idle):
                pairs = [(tf.zeros([0, 3]), empty), (tf.constant([1.0 + rank]), w), (None, idle)]
                for _ in range(2):  # two updates in one step
                    o.apply_gradients(pairs)

            step()
            np.testing.assert_allclose(w.numpy(), [-2.0])
            tf.function(step)()
            np.testing.assert_allclose(w.numpy(), [-5.0])
            assert idle.numpy() == 2.0
        with pytest.raises(ValueError, match="No gradients"):
            hvd.DistributedOptimizer(sgd(1.0)).apply_gradients([(None, w)])

    # A variable that two layers share, and a model with nothing to train.
    layer = tf.keras.layers.Dense(2, use_bias=False)
    inputs = tf.keras.Input((2,))
    shared = tf.keras.Model(inputs, layer(layer(inputs)))
    layer.set_weights([np.eye(2)])
    shared.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
    x = np.full((2, 2), 1.0 + rank)
    shared.fit(x, 0 * x, verbose=0)
    models.same_on_all_ranks(shared.get_weights())
    frozen = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(2)])
    frozen.trainable = False
    frozen.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
    before = frozen.get_weights()
    frozen.fit(x, 0 * x, verbose=0)
    np.testing.assert_array_equal(before[0], frozen.get_weights()[0])


@pytest.mark.smoke
def test_odd_gradients():
    run_ranks(_odd_gradients, 2)


def _local_variables() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    def model():
        return tf.keras.Sequential(
            [
                tf.keras.Input((1,)),
                tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False),
                tf.keras.layers.Dense(1, kernel_initializer="ones", use_bias=False),
            ]
        )

    for sgd in models.sgd_kinds():
        for scale in (True, False):
            for partial in (True, False):
                made = model()
                options = {"scale_local_gradients": scale}
                if partial:
                    optimizer = hvd.PartialDistributedOptimizer(
                        sgd(1.0), local_layers=made.layers[-1], **options
                    )
                else:
                    optimizer = hvd.DistributedOptimizer(sgd(1.0), **options)
                    optimizer.register_local_var(made.layers[-1].trainable_weights[0])
                # loss = w1 w2 (rank + 1): both gradients are rank + 1.
                made.compile(optimizer, loss=lambda _, output: output, run_eagerly=True)
                made.fit(np.array([[rank + 1.0]]), np.zeros((1, 1)), verbose=0)
                first, last = (float(weight[0, 0]) for weight in made.get_weights())
                assert first == 1.0 - (1 + size) / 2
                assert last == 1.0 - (rank + 1.0) / (size if scale else 1)
        # The norm of all gradients would differ between ranks; clipnorm is of each by itself.
        for options in ({"global_clipnorm": 2.0}, {"clipnorm": 1.0}):
            layer = made.layers[-1]
            optimizer = hvd.PartialDistributedOptimizer(sgd(1.0, **options), local_layers=layer)
            made.compile(optimizer, loss=lambda _, output: output, run_eagerly=True)
            if "clipnorm" in options:
                made.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)
                continue
            with pytest.raises(ValueError, match=r"kernel.* stays .* use clipnorm"):
                made.fit(np.ones((1, 1)), np.zeros((1, 1)), verbose=0)


def _groups_and_lists() -> None:
    """The gradient of each variable on rank r is r + 1, and its mean 1.5."""
    import tensorflow as tf

    import horovod.tensorflow
    import horovod.tensorflow.keras as hvd

    hvd.init()
    mine = hvd.rank() + 1.0
    for sgd in models.sgd_kinds():
        for passes in (1, 2):
            a, b, c, idle = (tf.Variable([1.0]) for _ in range(4))
            for groups in (None, 2, [[a, b], [c]], [[a, idle]]):
                for entry in (hvd, horovod.tensorflow):
                    optimizer = entry.DistributedOptimizer(
                        sgd(1.0), groups=groups, backward_passes_per_step=passes
                    )
                    for variable in (a, b, c):
                        variable.assign([1.0])
                    for _ in range(passes):
                        optimizer.apply_gradients(
                            [(None, idle), *((tf.constant([mine]), v) for v in (a, b, c))]
                        )
                    got = [variable.numpy()[0] for variable in (a, b, c, idle)]
                    np.testing.assert_allclose(got, [1 - 1.5 * passes] * 3 + [1.0])
        optimizer = hvd.DistributedOptimizer(sgd(1.0), groups=[[a, tf.Variable([1.0])]])
        with pytest.raises(ValueError, match=r"of groups\[0\] is none of the 1"):
            optimizer.apply_gradients([(tf.constant([mine]), a)])

        # Two lists of variables have passes of their own.
        for variable in (a, b):
            variable.assign([1.0])
        optimizer = hvd.DistributedOptimizer(sgd(1.0), backward_passes_per_step=2)
        if hasattr(optimizer, "build"):  # before it meets a part of the variables
            optimizer.build([a, b])
        for variable in (a, b, a, b, a):
            optimizer.apply_gradients([(tf.constant([mine]), variable)])
        np.testing.assert_allclose([a.numpy()[0], b.numpy()[0]], [-2.0, -2.0])


@pytest.mark.smoke
def test_groups_and_lists_of_variables():
    run_ranks(_groups_and_lists, 2)


@pytest.mark.smoke
def test_local_layers_and_variables():
    run_ranks(_local_variables, 2)


def _errors() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    keras = tf.keras.optimizers

    def refused(words: str, optimizer, **options) -> None:
        with pytest.raises(ValueError, match=words):
            hvd.DistributedOptimizer(optimizer, **options)

    class Torch:
        """Looks like an optimizer of PyTorch."""

        def step(self):
            """Does nothing."""

    refused("None is not a Keras optimizer", None)
    refused("not a Keras optimizer", Torch())
    refused("tf.keras.optimizers.get", "adam")
    refused("make one first", keras.SGD)
    refused("horovod.tensorflow.DistributedOptimizer", tf.compat.v1.train.AdamOptimizer())
    refused("backward_passes_per_step=0", keras.SGD(0.1), backward_passes_per_step=0)
    refused("backward_passes_per_step=1.5", keras.SGD(0.1), backward_passes_per_step=1.5)
    refused("groups=-1", keras.SGD(0.1), groups=-1)
    refused("pass a number, or a list of lists", keras.SGD(0.1), groups=["a"])
    refused("num_groups=2 and groups=3", keras.SGD(0.1), num_groups=2, groups=3)
    refused("op is Max", keras.SGD(0.1), op=hvd.Max)
    refused("compression='fp16'; pass", keras.SGD(0.1), compression="fp16")
    refused("process_set=None; pass", keras.SGD(0.1), process_set=None)
    refused("distributed already", hvd.DistributedOptimizer(keras.SGD(0.1)))
    with pytest.raises(ValueError, match="is not a Keras layer"):
        hvd.PartialDistributedOptimizer(keras.SGD(0.1), local_layers=[3])
    if models.is_keras_3():
        refused("gradient_accumulation_steps=2", keras.SGD(0.1, gradient_accumulation_steps=2))
        optimizer = hvd.DistributedOptimizer(keras.SGD(0.1))
        optimizer.gradient_accumulation_steps = 3
        with pytest.raises(ValueError, match="backward_passes_per_step=3"):
            optimizer.apply_gradients([(tf.ones([1]), tf.Variable([1.0]))])
        optimizer = hvd.DistributedOptimizer(keras.SGD(0.1))
        optimizer.apply([])
        with pytest.raises(ValueError, match="has no variables"):
            optimizer.apply([tf.ones([1])])
        for given in ([tf.Variable([1.0]), tf.Variable([1.0])], None):
            with pytest.raises(ValueError, match="has 1 gradients for 2 variables"):
                optimizer.apply([tf.ones([1])], given)
    optimizer = hvd.DistributedOptimizer(keras.SGD(0.1))
    variable = tf.Variable([1.0])

    @tf.function(jit_compile=True)
    def step():
        optimizer.apply_gradients([(tf.ones([1]), variable)])

    with pytest.raises(ValueError, match="jit_compile=False"):
        step()


@pytest.mark.smoke
def test_errors_say_what_to_do():
    run_ranks(_errors, 1)


def _copies() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    first, both = hvd.rank() + 1.0, 1.5
    copied = 0
    for kind in models.sgd_kinds():
        plain = hvd.DistributedOptimizer(kind(1.0), backward_passes_per_step=2)
        for used, optimizer in itertools.product(
            (False, True), (plain, type(plain).from_config(plain.get_config()))
        ):
            shared, own = tf.Variable(0.0), tf.Variable(0.0)
            pairs = [(tf.constant(first), shared), (tf.constant(first), own)]
            optimizer.register_local_var(own)
            if used:
                for _ in range(2):
                    optimizer.apply_gradients(pairs)
            for copier in (copy.copy, copy.deepcopy):
                try:
                    twin = copier(optimizer)
                except RuntimeError as error:  # of Keras 2, which has a strategy in it
                    assert "_DefaultDistributionStrategy" in str(error)
                    continue
                assert type(twin).__name__ == "SGD" and isinstance(twin, kind)
                shared.assign(0.0)
                own.assign(0.0)
                for _ in range(2):
                    twin.apply_gradients(pairs)
                assert (shared.numpy(), own.numpy()) == (-2 * both, -first)
                copied += 1
    # Of Keras 2 the legacy kind too, while the new one cannot be copied deeply.
    assert copied == (8 if models.is_keras_3() else 12)


def test_a_copy_of_a_distributed_optimizer_reduces():
    run_ranks(_copies, 2)
