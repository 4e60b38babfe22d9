"""Loss scaling and DistributedOptimizer, either around the other: all ranks skip the same steps."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models

STEPS = 6


def _model():
    """One layer in float16, without a policy for the whole process."""
    import tensorflow as tf

    return tf.keras.Sequential(
        [
            tf.keras.Input((2,)),
            tf.keras.layers.Dense(1, kernel_initializer="ones", dtype="mixed_float16"),
        ]
    )


def _optimizers():
    """Yields what makes an optimizer, and the LossScaleOptimizer for it."""
    import tensorflow as tf

    if models.is_keras_3():
        yield lambda: tf.keras.optimizers.SGD(0.125, 0.5), tf.keras.optimizers.LossScaleOptimizer
        return
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    yield lambda: tf.keras.optimizers.SGD(0.125, 0.5), scaling
    yield lambda: tf.keras.optimizers.legacy.SGD(0.125, 0.5), scaling


def _scale(optimizer) -> float:
    import tensorflow as tf

    name = "dynamic_scale" if models.is_keras_3() else "loss_scale"
    return float(tf.convert_to_tensor(getattr(optimizer, name)))


def _fit(model, infinite_step: int | None) -> list:
    """Trains; rank 1 alone has a value that float16 lacks, in one step."""
    import horovod.tensorflow.keras as hvd

    x = np.full((STEPS * 2, 2), 0.25 * (hvd.rank() + 1), np.float32)
    if hvd.rank() == 1 and infinite_step is not None:
        x[2 * infinite_step] = 1e30
    model.fit(x, np.zeros((STEPS * 2, 1)), batch_size=2, shuffle=False, verbose=0)
    return model.get_weights()


def _rank_1_has_inf() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    for make, scaling in _optimizers():
        for passes in (1, 2):
            options = {
                "backward_passes_per_step": passes,
                "average_aggregated_gradients": True,
            }

            def wrap(optimizer, options=options):
                return hvd.DistributedOptimizer(optimizer, **options)

            orders = {
                "ours around": lambda: wrap(scaling(make(), initial_scale=1024.0)),  # noqa: B023
                "scaling around": lambda: scaling(wrap(make()), initial_scale=1024.0),  # noqa: B023
                "by compile": lambda: wrap(make()),  # noqa: B023
            }
            for order, optimizer in orders.items():
                case = f"{order}, {passes} passes"
                model = _model()
                if order == "by compile":
                    _as_if_all_were_mixed(model)
                eagerly = passes == 2 and order != "scaling around"  # saves time
                model.compile(optimizer(), loss="mse", run_eagerly=eagerly)
                assert isinstance(model.optimizer, scaling) or not models.is_keras_3()
                assert hasattr(model.optimizer, "inner_optimizer"), case
                before = _scale_before(model.optimizer)
                weights = _fit(model, infinite_step=2)
                assert np.isfinite(weights[0]).all(), case
                assert not np.array_equal(weights[0], np.ones((2, 1))), case
                if order == "by compile":  # from a scale that is too high by itself
                    assert _scale(model.optimizer) < before, case
                else:
                    assert _scale(model.optimizer) == before / 2, case
                state = [
                    *weights,
                    _scale(model.optimizer),
                    float(tf.convert_to_tensor(model.optimizer.iterations)),
                ]
                models.same_on_all_ranks(state)


def _as_if_all_were_mixed(model) -> None:
    """Gives a model the policy under which `compile` scales the loss by itself."""
    import tensorflow as tf

    policy = tf.keras.mixed_precision.Policy("mixed_float16")
    if models.is_keras_3():
        model.dtype_policy = policy
    else:
        model._set_dtype_policy(policy)


def _scale_before(optimizer) -> float:
    if models.is_keras_3():
        return float(optimizer.initial_scale)
    return _scale(optimizer)


@pytest.mark.smoke
def test_all_ranks_skip_the_step_in_which_one_has_an_infinity():
    run_ranks(_rank_1_has_inf, 2, timeout_s=180)


def _fixed_scale_and_registration() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    for make, scaling in _optimizers():
        model = _model()
        if models.is_keras_3():
            inner = make()
            inner.loss_scale_factor = 64.0
            optimizer = hvd.DistributedOptimizer(inner)
        else:
            optimizer = hvd.DistributedOptimizer(scaling(make(), dynamic=False, initial_scale=64.0))
            with pytest.raises(ValueError, match="distributed already"):
                hvd.DistributedOptimizer(optimizer)
            with pytest.raises(ValueError, match="distributed already"):
                hvd.DistributedOptimizer(scaling(hvd.DistributedOptimizer(make())))
            assert type(optimizer.inner_optimizer) is not type(make())
        model.compile(optimizer, loss="mse", run_eagerly=True)
        models.same_on_all_ranks(_fit(model, None))
        # A scale that adapts itself would do so by a gradient that one rank alone has.
        kernel = tf.Variable([1.0])
        ours = hvd.DistributedOptimizer(scaling(make()))
        inside = hvd.DistributedOptimizer(make())
        ours.register_local_var(kernel)
        inside.register_local_var(kernel)
        for adapting in (ours, scaling(inside)):
            with pytest.raises(ValueError, match=r"Variable.* stays .* use a fixed scale"):
                adapting.apply_gradients([(tf.constant([1.0]), kernel)])
        variable = tf.Variable([1.0])
        optimizer.register_local_var(variable)
        reduced = optimizer._allreduce_grads([tf.constant([hvd.rank() + 1.0])], [variable])
        np.testing.assert_allclose(reduced[0], [(hvd.rank() + 1.0) / 2])


@pytest.mark.smoke
def test_a_fixed_scale_and_local_variables():
    run_ranks(_fixed_scale_and_registration, 2)


def _counts_of_passes() -> None:
    """The third of six passes has an infinity, in steps of two; a scale of 8 that grows after 2."""
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    keras_3 = models.is_keras_3()
    for make, scaling in _optimizers():
        for inside in (False, True):
            for updates in (False, True):

                def ours(optimizer, updates=updates):
                    return hvd.DistributedOptimizer(
                        optimizer, backward_passes_per_step=2, step_counts_updates=updates
                    )

                def scaled(optimizer, scaling=scaling):
                    return scaling(optimizer, initial_scale=8.0, dynamic_growth_steps=2)

                optimizer = scaled(ours(make())) if inside else ours(scaled(make()))
                w, seen = tf.Variable(0.0), []
                if keras_3:
                    optimizer.build([w])
                for number in range(6):
                    bad = number == 2 and hvd.rank() == 0
                    gradient = tf.constant(np.inf if bad else 1.0)
                    if keras_3:
                        gradient = gradient * _scale(optimizer)
                    before = w.numpy()
                    optimizer.apply_gradients([(gradient, w)])
                    moved = bool(w.numpy() != before)
                    seen.append((moved, int(optimizer.iterations), _scale(optimizer)))
                moved, counts, scales = zip(*seen)
                case = f"{inside} {updates}"
                assert moved == (False, True, False, False, False, True), case
                if keras_3:
                    assert counts == ((0, 1, 1, 1, 1, 2) if updates else (1, 2, 3, 3, 4, 5)), case
                    assert scales == (8, 8, 8, 4, 4, 4), case
                else:
                    assert counts == ((0, 1, 1, 2, 2, 3) if updates else (1, 2, 3, 4, 5, 6)), case
                    assert scales == (8, 16, 16, 8, 8, 16), case


def test_what_is_counted_over_several_passes():
    run_ranks(_counts_of_passes, 2)
