"""The callbacks in eager code, of Keras 2 and Keras 3; test_keras_graph_mode.py has graphs."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models


def _dense(rank: int, inputs: bool):
    """A model w x with w = 1 + rank; without inputs, built by its first step."""
    import tensorflow as tf

    initializer = tf.keras.initializers.Constant(1.0 + rank)
    layer = tf.keras.layers.Dense(1, use_bias=False, kernel_initializer=initializer)
    return tf.keras.Sequential([tf.keras.Input((1,)), layer] if inputs else [layer])


def _output(_, output):
    """A loss whose gradient is the input."""
    return output


def _broadcast() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank = hvd.rank()
    x = np.array([[1.0 + rank]] * 3, np.float32)

    class Lazy(tf.keras.Model):
        """Built by its first call."""

        def __init__(self):
            super().__init__()
            self.inner = _dense(rank, False)

        def call(self, x):
            return self.inner(x)

    # The step of each rank counts, and none is made with a rank's own weights.
    for make in (lambda: _dense(rank, True), lambda: _dense(rank, False), Lazy):
        model = make()
        model.compile(
            hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5, momentum=0.5)), loss=_output
        )
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
        model.fit(x, 0 * x, batch_size=1, callbacks=[callback], verbose=0)
        # v = -0.75, -1.125, -1.3125
        np.testing.assert_allclose(model.get_weights()[0], [[1 - 0.75 - 1.125 - 1.3125]])

    # Slots, iterations and learning rate of one that has trained already, on the root alone.
    model = _dense(rank, True)
    optimizer = tf.keras.optimizers.Adam(0.5 if rank == 1 else 0.25)
    model.compile(optimizer, loss=_output)
    if rank == 1:
        model.fit(x, 0 * x, batch_size=1, verbose=0)
    model.compile(hvd.DistributedOptimizer(optimizer), loss=_output)
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(1, device="/cpu:0")
    model.fit(x, 0 * x, batch_size=1, callbacks=[callback], verbose=0)
    rate = tf.convert_to_tensor(model.optimizer.learning_rate)
    assert float(rate) == 0.5
    assert int(model.optimizer.iterations) == 6
    models.same_on_all_ranks([*model.get_weights(), *map(np.array, model.optimizer.variables)])

    # Variables that ranks keep, given either way; and a model of other callbacks' optimizers.
    for way in (0, 1):
        model = _dense(rank, True)
        model.compile(tf.keras.optimizers.SGD(0.0), loss=_output)
        mine = [model.trainable_variables[0]]
        callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0, local_variables=mine[:way])
        if not way:
            callback.register_local_var(mine[0])
        model.fit(x, 0 * x, callbacks=[callback], verbose=0)
        np.testing.assert_allclose(model.get_weights()[0], [[1.0 + rank]])

    # Keras 2 takes tf.compat.v1 optimizers, and passes their compute_gradients by.
    if not models.is_keras_3():
        import horovod.tensorflow

        descent = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        model.compile(horovod.tensorflow.DistributedOptimizer(descent), loss=_output)
        with pytest.raises(ValueError, match="DistributedOptimizer of a"):
            model.fit(x, 0 * x, callbacks=[callback], verbose=0)

    for wrong in (1.5, "x", True, None, -1, 2):
        with pytest.raises(ValueError, match=r"Callback: root_rank=.*; it must be a (whole|rank)"):
            hvd.callbacks.BroadcastGlobalVariablesCallback(wrong)
    hvd.callbacks.BroadcastGlobalVariablesCallback(np.int64(1))

    # The random seeds of dropout stay each rank's own; XLA is turned off.
    model = tf.keras.Sequential(
        [
            tf.keras.Input((1,)),
            tf.keras.layers.Dropout(0.5, seed=1 + rank),
            *(tf.keras.layers.Dense(1) for _ in range(2)),
        ]
    )
    model.compile(
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss="mse", jit_compile=True
    )
    callback = hvd.callbacks.BroadcastGlobalVariablesCallback(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, 0 * x, callbacks=[callback], verbose=0)
    assert any("jit_compile is turned off" in str(one.message) for one in caught)
    models.same_on_all_ranks(model.get_weights())
    if models.is_keras_3():
        state = np.array(model.layers[0].seed_generator.state)
        states = hvd.allgather(state[None])
        assert state[1] > 0 and (states[0] != states[1]).any()


@pytest.mark.smoke
def test_broadcast_comes_before_the_first_step():
    run_ranks(_broadcast, 2, timeout_s=120)


def _metric_average() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank = hvd.rank()

    class Extra(tf.keras.callbacks.Callback):
        """Logs what only some ranks have, and what is no number."""

        def on_epoch_end(self, epoch, logs=None):
            logs["text"] = "word"
            logs["mine"] = 3.0 + rank
            if rank == 1:
                logs["val_of_rank_1"] = 7.0

    model = _dense(0, True)
    model.compile(tf.keras.optimizers.SGD(0.0), loss="mse", metrics=["mae"])
    # 4 samples with output 1 on rank 0, 12 with 3 on rank 1; in validation 2 with 2, 6 with 4.
    x = np.full(((4, 12)[rank], 1), (1.0, 3.0)[rank], np.float32)
    v = np.full(((2, 6)[rank], 1), (2.0, 4.0)[rank], np.float32)
    average = hvd.callbacks.MetricAverageCallback()
    history = model.fit(
        x,
        0 * x,
        batch_size=len(x),
        epochs=2,
        validation_data=(v, 0 * v),
        callbacks=[Extra(), average],
        verbose=0,
    ).history
    for _ in range(2):
        expected = {
            "loss": (4 * 1 + 12 * 9) / 16,
            "mae": (4 * 1 + 12 * 3) / 16,
            "val_loss": (2 * 4 + 6 * 16) / 8,
            "val_mae": (2 * 2 + 6 * 4) / 8,
            "mine": (4 * 3 + 12 * 4) / 16,
        }
        for name, value in expected.items():
            np.testing.assert_allclose(history[name], [value] * 2, rtol=1e-6, err_msg=name)
    assert history["val_of_rank_1"] == [7.0] * 2
    assert history["text"] == ["word"] * 2

    # A rank without metrics does not leave the others waiting.
    average.on_epoch_begin(0)
    logs = {"first": 2.0, "second": 3.0} if rank == 0 else {}
    average.on_epoch_end(0, logs)
    assert list(logs.items()) == [("first", 2.0), ("second", 3.0)]
    average.on_epoch_end(0, None)


@pytest.mark.smoke
def test_metrics_are_averaged_by_samples():
    run_ranks(_metric_average, 2)


def _learning_rates() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    x = np.ones((4, 1), np.float32)

    class Record(tf.keras.callbacks.Callback):
        """Keeps the learning rate of each batch."""

        def __init__(self):
            super().__init__()
            self.rates = []

        def on_train_batch_end(self, batch, logs=None):
            self.rates.append(float(tf.convert_to_tensor(self.model.optimizer.learning_rate)))

    def rates(*callbacks, epochs=3, optimizer=None, **options):
        model = _dense(0, True)
        model.compile(optimizer or tf.keras.optimizers.SGD(0.5), loss=_output)
        record = Record()
        history = model.fit(
            x, 0 * x, batch_size=2, epochs=epochs, callbacks=[*callbacks, record], verbose=0
        )
        return record.rates, history.history.get("lr"), model

    schedule, warmup = (
        hvd.callbacks.LearningRateScheduleCallback,
        hvd.callbacks.LearningRateWarmupCallback,
    )
    got, logged, _ = rates(schedule(1.0, lambda epoch: 10.0**-epoch))
    np.testing.assert_allclose(got, [1, 1, 0.1, 0.1, 0.01, 0.01], rtol=1e-6)
    np.testing.assert_allclose(logged, [1, 0.1, 0.01], rtol=1e-6)
    got, _, _ = rates(schedule(1.0, 0.25, start_epoch=1, end_epoch=2))
    np.testing.assert_allclose(got, [0.5, 0.5, 0.25, 0.25, 0.25, 0.25])
    got, _, _ = rates(schedule(1.0, lambda epoch: 1 + epoch, staircase=False), epochs=2)
    np.testing.assert_allclose(got, [1, 1.5, 2, 2.5])
    got, _, _ = rates(warmup(0.8, warmup_epochs=2, verbose=1))
    np.testing.assert_allclose(got, np.array([0.625, 0.75, 0.875, 1, 1, 1]) * 0.8, rtol=1e-6)
    # An epoch that has not the batches that it was said to have, and half an epoch.
    for options, steps in (
        ({"steps_per_epoch": 1}, [1, 1, 1, 1, 1, 1]),
        ({"steps_per_epoch": 4}, [0.625, 0.75, 1, 1, 1, 1]),
        ({"warmup_epochs": 1.5}, [2 / 3, 5 / 6, 1, 1, 1, 1]),
    ):
        got, _, _ = rates(warmup(0.8, **{"warmup_epochs": 1, **options}))
        np.testing.assert_allclose(got, np.array(steps) * 0.8, rtol=1e-6, err_msg=str(options))
    for wrong in (-1, "3", None, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"warmup_epochs=.*; it must be a finite number, 0"):
            warmup(0.8, warmup_epochs=wrong)
    for wrong in (0, -2, "a", 1.5, True):
        with pytest.raises(ValueError, match="steps_per_epoch="):
            warmup(0.8, steps_per_epoch=wrong)

    # Momentum: v <- m v (new rate / old rate) - rate g; once with loss scaling around, too.
    kinds = [tf.keras.optimizers.SGD]
    if not models.is_keras_3():
        kinds.append(tf.keras.optimizers.legacy.SGD)
    for kind in kinds:
        for distributed in (False, True):
            optimizer = kind(0.5, momentum=0.5)
            if distributed:
                optimizer = hvd.DistributedOptimizer(optimizer)
            got, _, model = rates(schedule(1.0, lambda epoch: 1 / (1 + epoch)), optimizer=optimizer)
            w, velocity, before = 1.0, 0.0, 0.5
            for rate in (1, 1, 1 / 2, 1 / 2, 1 / 3, 1 / 3):
                velocity = 0.5 * velocity * rate / before - rate
                w, before = w + velocity, rate
            np.testing.assert_allclose(model.get_weights()[0], [[w]], rtol=1e-5)

    # What cannot work says so.
    for wrong in (None, "0.1", [0.1], float("nan"), 1j):
        for make in (lambda rate: schedule(rate, 0.1), warmup):
            with pytest.raises(ValueError, match="initial_lr="):
                make(wrong)
    for wrong in (None, "0.5", [0.5], np.ones(2), float("inf")):
        with pytest.raises(ValueError, match="multiplier="):
            schedule(1.0, wrong)
        with pytest.raises(ValueError, match=r"multiplier\(0\) is .*; it must return a number"):
            rates(schedule(1.0, lambda epoch, wrong=wrong: wrong))
    for wrong in ("1", float("nan"), float("inf"), -float("inf")):
        for name in ("start_epoch", "end_epoch"):
            with pytest.raises(ValueError, match=f"{name}=.*; it must be a finite number"):
                schedule(1.0, 0.1, **{name: wrong})
    with pytest.raises(ValueError, match="end_epoch=2 is before start_epoch=5"):
        schedule(1.0, 0.1, start_epoch=5, end_epoch=2)
    schedule(1.0, 0.1, start_epoch=5, end_epoch=5)  # none of the epochs, as of range(5, 5)
    with pytest.raises(ValueError, match="start_epoch=None"):
        schedule(1.0, 0.1, start_epoch=None)
    with pytest.raises(ValueError, match="PolynomialDecay"):
        decay = tf.keras.optimizers.schedules.PolynomialDecay(0.1, 10)
        rates(schedule(1.0, 0.1), optimizer=tf.keras.optimizers.SGD(decay))
    model = _dense(0, True)
    model.compile(tf.keras.optimizers.SGD(0.5), loss=_output)
    unknown = tf.data.Dataset.from_generator(
        lambda: iter([(x, x)] * 2),
        output_signature=(tf.TensorSpec((4, 1)), tf.TensorSpec((4, 1))),
    )
    with pytest.raises(ValueError, match="steps_per_epoch"):
        model.fit(unknown, callbacks=[warmup(0.8)], verbose=0)
    model.fit(unknown, callbacks=[warmup(0.8, steps_per_epoch=2)], verbose=0)


@pytest.mark.smoke
def test_learning_rates():
    run_ranks(_learning_rates, 2, timeout_s=120)


def _agreed_stop() -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    rank = hvd.rank()
    x = np.ones((8, 1), np.float32)

    class StopOnRank1(tf.keras.callbacks.Callback):
        """Wants to stop after the third batch, or the first epoch."""

        def __init__(self, batch):
            super().__init__()
            self.batch = batch

        def on_train_batch_end(self, batch, logs=None):
            if hvd.rank() == 1 and batch == self.batch:
                self.model.stop_training = True

        def on_epoch_end(self, epoch, logs=None):
            if hvd.rank() == 1 and self.batch is None:
                self.model.stop_training = True

    for every, batch, steps in ((1, 2, 3), (2, 2, 4), (0, 2, 8), (1, None, 8), (3, 2, 3)):
        model = _dense(0, True)
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), loss=_output)
        callbacks = [StopOnRank1(batch), hvd.callbacks.AgreedEarlyStopping(every)]
        for _ in range(2):  # the callbacks may be used again
            before = int(model.optimizer.iterations)
            model.fit(x, 0 * x, batch_size=1, epochs=3, callbacks=callbacks, verbose=0)
            assert int(model.optimizer.iterations) - before == steps, (every, batch)
            models.same_on_all_ranks(model.get_weights())

    # All get the weights that one restores: EarlyStopping of rank 1 takes the first epoch's for
    # the best, that of rank 0 each newer one's.
    model = tf.keras.Sequential(
        [tf.keras.Input((1,)), *(tf.keras.layers.Dense(1, use_bias=False) for _ in range(2))]
    )
    model.layers[1].set_weights([np.full((1, 1), 1.0 + rank)])
    optimizer = hvd.PartialDistributedOptimizer(
        tf.keras.optimizers.SGD(0.0), local_layers=model.layers[1]
    )
    model.compile(optimizer, loss=_output)
    by_hand = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: model.layers[0].set_weights(
            [np.full((1, 1), 2.0 + epoch + 5 * rank)]
        )
    )
    best = tf.keras.callbacks.EarlyStopping(
        monitor="loss", mode=("min", "max")[rank], patience=rank or 9, restore_best_weights=True
    )
    best.get_monitor_value = lambda logs: -float(model.layers[0].get_weights()[0][0, 0])
    callbacks = [by_hand, best, hvd.callbacks.AgreedEarlyStopping(0)]
    history = model.fit(x, 0 * x, batch_size=8, epochs=4, callbacks=callbacks, verbose=0)
    assert history.epoch == [0, 1]
    np.testing.assert_array_equal(model.layers[0].get_weights()[0], [[7.0]])
    np.testing.assert_array_equal(model.layers[1].get_weights()[0], [[1.0 + rank]])
    for wrong in (-1, 0.5, True, "1"):
        with pytest.raises(ValueError, match=r"every_batches=.*; it must be a whole number, 0"):
            hvd.callbacks.AgreedEarlyStopping(wrong)


@pytest.mark.smoke
def test_one_rank_stops_all_at_the_same_step():
    run_ranks(_agreed_stop, 2)


def _best_model(folder: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    x = np.ones((2, 1), np.float32)
    for name, weights_only in (("best.keras", False), ("best.weights.h5", True)):
        model = _dense(0, True)
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.25)), loss="mse")
        callback = hvd.callbacks.BestModelCheckpoint(monitor="loss", save_weights_only=weights_only)
        with pytest.raises(ValueError, match=r"callback\.filepath"):
            model.fit(x, 0 * x, callbacks=[callback], verbose=0)
        callback.filepath = f"{folder}/rank{hvd.rank()}-{name}"
        model.fit(x, 0 * x, epochs=2, callbacks=[callback], verbose=0)
        assert os.path.exists(callback.filepath) == (hvd.rank() == 0)


@pytest.mark.smoke
def test_rank_0_saves_the_best_model(tmp_path):
    run_ranks(_best_model, 2, str(tmp_path))
