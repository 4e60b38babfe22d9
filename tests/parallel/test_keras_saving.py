"""Models saved during training load where this package is not installed; load_model goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models

# In a process that cannot import this package: weights and optimizer state of each file.
LOAD = """
import json, sys
sys.modules["horovod"] = None
import numpy as np
import tensorflow as tf
result = {}
for path in sys.argv[1:]:
    model = tf.keras.models.load_model(path)
    optimizer = model.optimizer
    inner = getattr(optimizer, "inner_optimizer", None) or optimizer
    result[path] = [type(optimizer).__name__, type(inner).__name__, int(optimizer.iterations),
                    float(np.array(optimizer.learning_rate)),
                    [np.array(weight).tolist() for weight in model.get_weights()]]
print(json.dumps(result))
"""


def _cases() -> dict:
    """Returns what makes an optimizer with the help of a function that distributes one."""
    import tensorflow as tf

    keras = tf.keras.optimizers
    cases = {"adam": lambda wrap: wrap(keras.Adam(0.125))}
    if models.is_keras_3():
        scaling = keras.LossScaleOptimizer
    else:
        scaling = tf.keras.mixed_precision.LossScaleOptimizer
        cases["legacy"] = lambda wrap: wrap(keras.legacy.Adam(0.125))
    cases["scaled"] = lambda wrap: wrap(scaling(keras.SGD(0.125, 0.5)))
    cases["scaling"] = lambda wrap: scaling(wrap(keras.RMSprop(0.125)))
    return cases


def _model():
    import tensorflow as tf

    return tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])


def _save(folder: str) -> list[tuple[str, str, list]]:
    """Trains each case with a distributed optimizer and with a plain one, and saves both.

    Returns:
      On rank 0, for each case and format the two paths, and the weights of the first.
    """
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()
    formats = [".keras", ".h5"] if models.is_keras_3() else [".keras", ".h5", ""]
    saved = []
    for kind, make in _cases().items():
        for suffix in formats:
            if suffix == "" and kind != "scaled":
                continue  # SavedModel is slow
            paths, weights = [], []
            for name, wrap in (("ours", hvd.DistributedOptimizer), ("plain", lambda plain: plain)):
                # Each format takes a model of its own: saving may change one.
                model = _model()
                loss = tf.keras.losses.MeanSquaredError()
                model.compile(make(wrap), loss=loss, run_eagerly=True)
                x = np.full((2, 2), 1.0 + hvd.rank(), np.float32)
                for _ in range(2):
                    model.train_on_batch(x, np.zeros((2, 1), np.float32))
                paths.append(f"{folder}/{name}-{kind}{suffix}")
                weights.append([weight.tolist() for weight in model.get_weights()])
                if hvd.rank() == 0:
                    model.save(paths[-1])
            saved.append((*paths, weights[0]))
    return saved


def _load_and_go_on(paths: list[str]) -> None:
    """Two steps after loading, all ranks have the same bits, and slots were kept."""
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd
    from horovod.tensorflow.keras import _override_points

    hvd.init()
    for path in paths:
        plain = tf.keras.models.load_model(path)
        model = hvd.load_model(path, compression=hvd.Compression.fp16)
        assert isinstance(model.optimizer, type(plain.optimizer)), path
        slots = [_override_points.state(each.optimizer) for each in (plain, model)]
        assert len(slots[0]) == len(slots[1]), path
        for left, right in zip(*slots):
            np.testing.assert_array_equal(np.array(left), np.array(right), err_msg=path)
        if models.is_keras_3() and path.endswith(".h5"):
            continue  # it builds the optimizer with no variables, and cannot go on
        x = np.full((2, 2), 0.1 * (1.0 + hvd.rank()), np.float32)
        model.fit(x, np.zeros((2, 1), np.float32), epochs=2, verbose=0)
        assert int(model.optimizer.iterations) == int(plain.optimizer.iterations) + 2, path
        models.same_on_all_ranks(model.get_weights())
        with pytest.raises(ValueError, match="distributed already"):
            hvd.DistributedOptimizer(model.optimizer)


def check_saved_models(folder: str, env: dict[str, str]) -> None:
    """Fails unless models load that ranks have saved, all under some environment variables."""
    saved = run_ranks(_save, 2, folder, timeout_s=120, env=env)[0]
    paths = [path for ours, plain, _ in saved for path in (ours, plain)]
    loader = subprocess.run(
        [sys.executable, "-c", LOAD, *paths],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert loader.returncode == 0, loader.stderr[-4000:]
    loaded = json.loads(loader.stdout.splitlines()[-1])
    for ours, plain, weights in saved:
        assert loaded[ours][-1] == weights, ours
        # Kind, iterations and learning rate, which Keras itself loses in some formats.
        assert loaded[ours][:-1] == loaded[plain][:-1], ours
    run_ranks(_load_and_go_on, 2, [ours for ours, _, _ in saved], timeout_s=180, env=env)


@pytest.mark.smoke
def test_saved_models_load_without_this_package_and_with_it(tmp_path):
    check_saved_models(str(tmp_path), {})


def _own_classes(folder: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow.keras as hvd

    hvd.init()

    class Mine(tf.keras.optimizers.SGD):
        """A program's own optimizer."""

    @tf.keras.utils.register_keras_serializable("tests")
    class Registered(tf.keras.optimizers.SGD):
        """One that Keras knows by name."""

    for kind, options in ((Mine, {"custom_optimizers": [Mine]}), (Registered, {})):
        for suffix in (".keras", ".h5"):
            model = _model()
            loss = tf.keras.losses.MeanSquaredError()  # "mse" does not load from Keras 3's .h5
            model.compile(hvd.DistributedOptimizer(kind(0.25)), loss=loss)
            path = f"{folder}/{kind.__name__}-{hvd.rank()}{suffix}"
            model.save(path)
            loaded = hvd.load_model(path, **options)
            assert isinstance(loaded.optimizer, kind), path
            assert type(loaded.optimizer) is not kind

    # A model without an optimizer.
    model = _model()
    model.save(f"{folder}/plain-{hvd.rank()}.keras")
    loaded = hvd.load_model(f"{folder}/plain-{hvd.rank()}.keras", legacy_opts=True)
    assert getattr(loaded, "optimizer", None) is None
    with pytest.raises(ValueError, match="load_model: compression='fp16'; pass"):
        hvd.load_model(f"{folder}/plain-{hvd.rank()}.keras", compression="fp16")


@pytest.mark.smoke
def test_optimizers_of_programs_own_classes_load(tmp_path):
    run_ranks(_own_classes, 1, str(tmp_path))
