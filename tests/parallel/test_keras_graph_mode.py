"""Keras of compat.v1 graphs: with eager execution off, and with all of TensorFlow 2 off."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.ranks import run_ranks
from tests.parallel import keras_models as models

BATCH, STEPS = 4, 6


def _turn_off(what: str) -> None:
    import tensorflow as tf

    getattr(tf.compat.v1, what)()


def _model(rank: int):
    import tensorflow as tf

    constant = tf.keras.initializers.Constant(1.0 + rank)
    return tf.keras.Sequential(
        [
            tf.keras.layers.Dense(
                1, use_bias=False, kernel_initializer=constant, input_shape=(1,), name="only"
            )
        ]
    )


def _data(rank: int, size: int):
    random = np.random.default_rng(1)
    x = random.normal(size=(STEPS, size, BATCH, 1)).astype(np.float32)
    return x.reshape(-1, 1), x[:, rank].reshape(-1, 1)


def _train_and_watch(what: str) -> None:
    _turn_off(what)
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    whole, mine = _data(rank, size)
    legacy = tf.keras.optimizers.legacy
    kinds = [lambda: legacy.SGD(0.1, momentum=0.5), lambda: legacy.Adam(0.1)]
    if what == "disable_v2_behavior":
        with tf.Graph().as_default(), pytest.raises(ValueError, match=r"legacy\.SGD"):
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1))

    def fit(x, optimizer, batch, start, *callbacks, **options):
        model = _model(start)
        model.compile(optimizer, loss="mse", **options)
        history = model.fit(
            x,
            3 * x + 1,
            batch_size=batch,
            shuffle=False,
            epochs=2,
            verbose=0,
            callbacks=list(callbacks),
        )
        return model, history.history

    for make in kinds:
        expected = fit(whole, make(), BATCH * size, 0)[0].get_weights()[0]
        # Ranks start from other weights; and from two passes over halves of the batches.
        for passes in (1, 2):
            optimizer = hvd.DistributedOptimizer(
                make(), backward_passes_per_step=passes, average_aggregated_gradients=True
            )
            if passes == 2 and "Adam" in type(optimizer).__name__:
                continue  # its step depends on the count of passes
            callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
            model, history = fit(
                mine,
                optimizer,
                BATCH // passes,
                rank,
                callback,
                hvd.callbacks.MetricAverageCallback(),
            )
            got = model.get_weights()[0]
            np.testing.assert_allclose(got, expected, rtol=1e-4, err_msg=f"{passes} passes")
            gathered = hvd.allgather(got)
            np.testing.assert_array_equal(gathered, np.repeat(got, size, axis=0))
            losses = hvd.allgather([history["loss"]])
            np.testing.assert_array_equal(losses[0], losses[1])

    # Metrics by samples: outputs 1 and 3 of 4 and 12 samples.
    x = np.full(((4, 12)[rank], 1), (1.0, 3.0)[rank], np.float32)
    model = _model(0)
    model.compile(legacy.SGD(0.0), loss="mse")
    history = model.fit(
        x,
        0 * x,
        batch_size=4,
        verbose=0,
        validation_data=(x, 0 * x),
        callbacks=[hvd.callbacks.MetricAverageCallback()],
    ).history
    np.testing.assert_allclose(history["loss"], [7.0])
    np.testing.assert_allclose(history["val_loss"], [7.0])

    # The learning rate with momentum, and a stop that one rank wants.
    class StopOnRank1(tf.keras.callbacks.Callback):
        """Wants to stop after the fourth batch."""

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = rank == 1 and batch == 3

    warmup = hvd.callbacks.LearningRateWarmupCallback(1.0, warmup_epochs=1)
    ones = np.ones((8, 1), np.float32)
    model = _model(0)
    optimizer = hvd.DistributedOptimizer(legacy.SGD(0.1, momentum=0.5))
    model.compile(optimizer, loss=lambda _, output: output)
    model.fit(
        ones,
        ones,
        batch_size=1,
        epochs=2,
        verbose=0,
        callbacks=[warmup, StopOnRank1(), hvd.callbacks.AgreedEarlyStopping()],
    )
    w, velocity, before = 1.0, 0.0, 0.1
    for rate in np.arange(9, 13) / 16:
        velocity = 0.5 * velocity * rate / before - rate
        w, before = w + velocity, rate
    np.testing.assert_allclose(model.get_weights()[0], [[w]], rtol=1e-5)

    # Values in, values out.
    np.testing.assert_allclose(hvd.allreduce([1.0 + rank, 4.0]), [1.5, 4.0])
    np.testing.assert_array_equal(hvd.broadcast([rank], 1), [1])
    weight = model.trainable_weights[0]
    tf.compat.v1.keras.backend.set_value(weight, [[5.0 + rank]])
    np.testing.assert_allclose(hvd.allreduce(weight), [[5.5]])
    hvd.broadcast_global_variables(1)
    np.testing.assert_allclose(model.get_weights()[0], [[6.0]])


@pytest.mark.parametrize("what", ["disable_eager_execution", "disable_v2_behavior"])
def test_training_in_graphs(what):
    run_ranks(_train_and_watch, 2, what, timeout_s=180, env=models.keras_2_environment())


def _loss_scale_in_graphs() -> None:
    _turn_off("disable_eager_execution")
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank = hvd.rank()
    legacy = tf.keras.optimizers.legacy
    scaling = tf.keras.mixed_precision.LossScaleOptimizer
    x = np.full((6, 1), 0.25 * (1 + rank), np.float32)
    if rank == 1:
        x[2] = np.inf
    for passes in (1, 2):

        def wrap(optimizer, passes=passes):
            return hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes)

        for make in (
            lambda: wrap(scaling(legacy.SGD(0.1, 0.5), initial_scale=64.0)),
            lambda: scaling(wrap(legacy.SGD(0.1, 0.5)), initial_scale=64.0),
        ):
            model, optimizer = _model(0), make()
            model.compile(optimizer, loss="mse")
            model.fit(x, 0 * x, batch_size=1, shuffle=False, verbose=0)
            weight = model.get_weights()[0]
            value = tf.compat.v1.keras.backend.get_value
            state = [float(weight[0, 0]), float(value(optimizer.loss_scale))]
            assert np.isfinite(weight).all() and state[0] != 1.0 and state[1] == 32.0
            assert int(value(optimizer.iterations)) == 6
            gathered = hvd.allgather([state])
            np.testing.assert_array_equal(gathered[0], gathered[1])


def test_loss_scaling_in_graphs():
    run_ranks(_loss_scale_in_graphs, 2, timeout_s=120, env=models.keras_2_environment())


def _slots_by_name(what: str, folder: str) -> None:
    """Saves with an optimizer, restores into the same one unwrapped, and the other way round."""
    _turn_off(what)
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    v1, legacy = tf.compat.v1, tf.keras.optimizers.legacy
    kinds = {
        "momentum": lambda: legacy.SGD(0.1, momentum=0.5),
        "Adam": lambda: legacy.Adam(0.1),
        "scaled": lambda: tf.keras.mixed_precision.LossScaleOptimizer(
            legacy.SGD(0.1, momentum=0.5), dynamic=False, initial_scale=2.0
        ),
    }

    def run(optimizer, path, save):
        """The values of all global variables by name, after a step or from a checkpoint."""
        with tf.Graph().as_default(), v1.Session() as session:
            v1.keras.backend.set_session(session)
            w = v1.get_variable("w", initializer=[1.0, 2.0], use_resource=True)
            pairs = lambda: [(2.0 * w, w)]  # noqa: E731
            train = [optimizer().apply_gradients(pairs()) for _ in range(2)]  # Adam and Adam_1
            variables = v1.global_variables()
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver()
            if save:
                for _ in range(2):
                    session.run(train)
                saver.save(session, path)
            else:
                saver.restore(session, path)
            return {v.op.name: session.run(v).tolist() for v in variables}

    for kind, make in kinds.items():
        for passes in (1, 2):

            def wrapped(make=make, passes=passes):
                return hvd.DistributedOptimizer(make(), backward_passes_per_step=passes)

            for number, (first, second) in enumerate(((make, wrapped), (wrapped, make))):
                path = f"{folder}/{kind}-{passes}-{number}/model"
                saved = run(first, path, True)
                assert len(saved) > 4 and saved["w"] != [1.0, 2.0]
                assert run(second, path, False) == saved


@pytest.mark.parametrize("what", ["disable_eager_execution", "disable_v2_behavior"])
def test_checkpoints_by_name_fit_the_unwrapped_optimizer(what, tmp_path):
    run_ranks(_slots_by_name, 1, what, str(tmp_path), env=models.keras_2_environment())
