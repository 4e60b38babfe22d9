"""tf_keras, which is Keras 2 for a TensorFlow with Keras 3: as `tf.keras`, and beside it.

TF_USE_LEGACY_KERAS=1 makes it `tf.keras`.  Then what the other tests check of Keras 2 holds, which
they do themselves where Keras 2 is all there is.  test_keras_override_points.py has its canaries
and test_keras_graph_mode.py its graphs.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models
from tests.parallel import (
    test_consistency,
    test_keras_callbacks,
    test_keras_loss_scale,
    test_keras_optimizer,
    test_keras_saving,
    test_keras_values,
    test_sync_batch_norm,
    test_tape,
)

AS_TF_KERAS = models.keras_2_environment()
pytestmark = pytest.mark.skipif(not AS_TF_KERAS, reason="tf.keras is Keras 2 by itself")

QUICK = [
    test_keras_callbacks._broadcast,
    test_keras_callbacks._metric_average,
    test_keras_optimizer._is_still_the_optimizer,
    test_keras_optimizer._passes_by_hand,
    test_sync_batch_norm._trains,
]
OTHERS = [
    test_keras_callbacks._agreed_stop,
    test_keras_callbacks._learning_rates,
    test_keras_loss_scale._fixed_scale_and_registration,
    test_keras_loss_scale._rank_1_has_inf,
    test_keras_optimizer._clipping,
    test_keras_optimizer._equals_the_whole_batch,
    test_keras_optimizer._groups_and_lists,
    test_keras_optimizer._local_variables,
    test_keras_optimizer._odd_gradients,
    test_keras_optimizer._passes_in_fit,
    test_keras_values._modules,
    test_keras_values._values,
    test_sync_batch_norm._equals_one_process,
    test_sync_batch_norm._refuses,
    test_sync_batch_norm._sends_little,
    test_tape._check_tape,
    test_tape._partial,
]


def _cases() -> list:
    """Returns functions that check by themselves, for two ranks."""

    def name(check) -> str:
        return check.__module__.rpartition(".test_")[2] + check.__name__

    quick = [pytest.param(check, id=name(check), marks=pytest.mark.smoke) for check in QUICK]
    return [*quick, *(pytest.param(check, id=name(check)) for check in OTHERS)]


@pytest.mark.parametrize("check", _cases())
def test_as_tf_keras_it_does_what_keras_2_does(check):
    run_ranks(check, 2, timeout_s=240, env=AS_TF_KERAS)


def test_what_returns_something_to_check():
    run = functools.partial(run_ranks, env=AS_TF_KERAS)
    assert run(test_consistency._callback, 2) == [3, 3]
    assert run(test_sync_batch_norm._virtual_batches, 2) == ["checked"] * 2


def test_models_are_saved_and_loaded(tmp_path):
    for folder in ("models", "layer"):
        (tmp_path / folder).mkdir()
    test_keras_saving.check_saved_models(str(tmp_path / "models"), AS_TF_KERAS)
    test_sync_batch_norm.check_a_saved_model(str(tmp_path / "layer"), AS_TF_KERAS)
    run_ranks(test_keras_saving._own_classes, 2, str(tmp_path), env=AS_TF_KERAS)
    run_ranks(test_keras_callbacks._best_model, 2, str(tmp_path), env=AS_TF_KERAS)


def _which_it_is() -> tuple[str, bool]:
    import tensorflow as tf

    from horovod.tensorflow import other_keras

    return tf.keras.layers.Layer.__module__.split(".")[0], other_keras.is_keras_3()


@pytest.mark.smoke
def test_the_variable_decides_which_keras_it_is():
    assert run_ranks(_which_it_is, 2, env=AS_TF_KERAS) == [("tf_keras", False)] * 2
    assert run_ranks(_which_it_is, 2) == [("keras", True)] * 2


def _fit(keras, optimizer, callbacks=()) -> list:
    """Trains w x, w = 1 + rank; rank r has x = 1 + r."""
    import horovod.tensorflow as hvd

    start = keras.initializers.Constant(1.0 + hvd.rank())
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer=start)
    model = keras.Sequential([keras.Input((1,)), layer])
    if not callbacks:
        hvd.broadcast_variables(model.variables, 0)
    model.compile(optimizer, loss=lambda _, output: output)
    x = np.full((3, 1), 1.0 + hvd.rank(), np.float32)
    model.fit(x, 0 * x, batch_size=1, verbose=0, callbacks=list(callbacks))
    return model.get_weights()


def _beside_keras_3(folder: str) -> None:
    import tensorflow as tf
    import tf_keras

    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras

    hvd.init()
    path = f"{folder}/{hvd.rank()}"
    # Optimizers work.
    want = [[[1 - 0.5 * 1.5 * 3]]]
    scaling = tf_keras.mixed_precision.LossScaleOptimizer
    for make in (
        lambda: hvd_keras.DistributedOptimizer(tf_keras.optimizers.SGD(0.5)),
        lambda: hvd.DistributedOptimizer(tf_keras.optimizers.legacy.SGD(0.5)),
        lambda: hvd.DistributedOptimizer(scaling(tf_keras.optimizers.SGD(0.5))),
        lambda: scaling(hvd.DistributedOptimizer(tf_keras.optimizers.legacy.SGD(0.5))),
    ):
        np.testing.assert_allclose(_fit(tf_keras, make()), want)
    layer = tf_keras.layers.Dense(1, use_bias=False)
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        output = layer(tf.constant([[1.0 + hvd.rank()]]))
    np.testing.assert_allclose(tape.gradient(output, layer.trainable_variables), [[[1.5]]])

    # Callbacks, layers, files and sessions are of tf.keras.
    callbacks = hvd_keras.callbacks
    best = callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = f"{path}.keras"
    for callback in (
        callbacks.AgreedEarlyStopping(),
        best,
        callbacks.BroadcastGlobalVariablesCallback(0),
        callbacks.CheckConsistencyCallback(1),
        callbacks.LearningRateScheduleCallback(1.0, 1.0),
        callbacks.LearningRateWarmupCallback(1.0),
        callbacks.MetricAverageCallback(),
    ):
        words = f"{type(callback).__name__}: model 'sequential.* TF_USE_LEGACY_KERAS=1"
        with pytest.raises(ValueError, match=words):
            _fit(tf_keras, tf_keras.optimizers.SGD(0.5), [callback])
    with pytest.raises(ValueError, match=r"is of tf_keras.* TF_USE_LEGACY_KERAS=1"):
        hvd.SyncBatchNormalization()(tf_keras.Input((1,)))
    model = tf_keras.Sequential([tf_keras.layers.Dense(1, input_shape=(1,))])
    model.compile("sgd", "mse")
    model.save(f"{path}.h5")
    with pytest.raises(ValueError, match=r"\.h5': .* TF_USE_LEGACY_KERAS=1"):
        hvd_keras.load_model(f"{path}.h5")
    with tf.Graph().as_default(), pytest.raises(RuntimeError, match="Keras 3 has no session"):
        hvd_keras.broadcast_global_variables(0)


@pytest.mark.smoke
def test_models_of_tf_keras_beside_keras_3(tmp_path):
    # One rank's files are not the other's.
    run_ranks(_beside_keras_3, 2, str(tmp_path), timeout_s=120)


def _keras_3_beside_it(path: str) -> list:
    import keras

    import horovod.tensorflow.keras as hvd

    hvd.init()
    best = hvd.callbacks.BestModelCheckpoint(monitor="loss")
    best.filepath = path
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.LearningRateScheduleCallback(0.5, 1.0),
        hvd.callbacks.MetricAverageCallback(),
        best,
        hvd.callbacks.CheckConsistencyCallback(1),
        hvd.callbacks.AgreedEarlyStopping(),
    ]
    return _fit(keras, hvd.DistributedOptimizer(keras.optimizers.SGD(0.5)), callbacks)


def test_models_of_keras_3_beside_tf_keras(tmp_path):
    path = tmp_path / "best.keras"
    for weights in run_ranks(_keras_3_beside_it, 2, str(path), env=AS_TF_KERAS):
        np.testing.assert_allclose(weights, [[[1 - 0.5 * 1.5 * 3]]])
    assert path.exists()
