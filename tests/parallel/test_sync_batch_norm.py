"""SyncBatchNormalization: as one process with the whole batch, and a plain layer once saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel import keras_models as models

# What each case gives the layer, the shape of one sample, and the rows of rank 0 and of rank 1.
_CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, int]]] = {
    "rows": ({}, (3,), (8, 4)),
    "images": ({"momentum": 0.5}, (2, 2, 3), (8, 4)),
    "channels first": ({"axis": 1, "center": False}, (3, 2, 2), (4, 8)),
    "a rank without rows": ({"scale": False}, (3,), (5, 0)),
    "float64": ({"dtype": "float64"}, (3,), (8, 4)),
    "mixed precision": ({"dtype": "mixed_float16"}, (3,), (8, 4)),
    "masked": ({}, (4, 3), (8, 4)),
}
_KERAS_2_CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], tuple[int, int]]] = {
    "renorm": ({"renorm": True, "renorm_clipping": {"rmax": 1.5, "dmax": 0.5}}, (3,), (8, 4)),
    "two axes": ({"axis": [1, 2]}, (3, 2), (8, 4)),
}


def _keras_2() -> bool:
    import tensorflow as tf

    return not hasattr(tf.keras, "ops")


def _check_case(case: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    options, sample, rows = {**_CASES, **_KERAS_2_CASES}[case]
    random = np.random.default_rng(5)
    half = options.get("dtype") == "mixed_float16"
    dtype = "float16" if half else options.get("dtype", "float32")
    # The mean is far larger than the deviation, where sums of squares would lose the variance.
    data = random.normal(3.0 if half else 1000.0, 1.0, (sum(rows), *sample)).astype(dtype)
    factors = random.normal(size=data.shape).astype(dtype)
    mask = random.random((sum(rows), *sample[:-1])) < 0.7 if case == "masked" else None
    begin = rows[0] * hvd.rank()
    mine = slice(begin, begin + rows[hvd.rank()])

    def train(layer, part, mode):
        x, by = tf.constant(data[part]), tf.constant(factors[part])
        extra = {} if mask is None else {"mask": tf.constant(mask[part])}
        layer.build(x.shape)

        def step():
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = layer(x, training=True, **extra)
                loss = tf.reduce_sum(tf.cast(by * y * y, tf.float32))
            weights = [v for v in (layer.gamma, layer.beta) if v is not None]
            return y, tape.gradient(loss, [x, *map(_plain, weights)])

        if mode == "function":
            step = tf.function(step, autograph=False)
        results = [step() for _ in range(2)][-1]
        return results, [v.numpy() for v in (layer.moving_mean, layer.moving_variance)]

    def _plain(variable):
        return getattr(variable, "value", variable) if not _keras_2() else variable

    for mode in ("eager", "function"):
        plain = {"fused": False} if _keras_2() else {}
        whole, whole_moving = train(
            tf.keras.layers.BatchNormalization(**plain, **options), slice(None), mode
        )
        parts, moving = train(hvd.SyncBatchNormalization(**options, name="bn"), mine, mode)
        near = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 2e-3, "atol": 2e-3}
        np.testing.assert_allclose(parts[0], whole[0][mine], **near)
        np.testing.assert_allclose(parts[1][0], whole[1][0][mine], **near)
        for gradient, of_whole in zip(parts[1][1:], whole[1][1:]):
            np.testing.assert_allclose(hvd.allreduce(gradient, op=hvd.Sum), of_whole, **near)
        for value, of_whole in zip(moving, whole_moving):
            np.testing.assert_allclose(value, of_whole, rtol=1e-3)
        if dtype == "float64":
            np.testing.assert_allclose(parts[1][0], whole[1][0][mine], rtol=1e-6, atol=1e-6)


def _equals_one_process() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    for case in [*_CASES, *(_KERAS_2_CASES if _keras_2() else ())]:
        try:
            _check_case(case)
        except AssertionError as error:
            raise AssertionError(f"{case}: {error}") from error


@pytest.mark.smoke
def test_ranks_equal_one_process_with_the_whole_batch():
    run_ranks(_equals_one_process, 2, timeout_s=120)


def _virtual_batches() -> str:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    options = {"virtual_batch_size": 2}
    if not _keras_2():
        with pytest.raises((TypeError, ValueError), match="virtual_batch_size"):
            hvd.SyncBatchNormalization(**options)
        with pytest.raises((TypeError, ValueError), match="renorm"):
            hvd.SyncBatchNormalization(renorm=True)
        return "refused"
    # Two virtual batches on each rank: rows 0 and 2, and rows 1 and 3.
    x = np.random.default_rng(hvd.rank()).normal(size=(4, 3)).astype(np.float32)
    got = hvd.SyncBatchNormalization(**options)(tf.constant(x), training=True).numpy()
    both = hvd.allgather(x, name="x").numpy()
    for first in (0, 1):
        batch = both[first::2]
        want = (batch - batch.mean(0)) / np.sqrt(batch.var(0) + 1e-3)
        np.testing.assert_allclose(got[first::2], want[2 * hvd.rank() :][:2], rtol=1e-4, atol=1e-4)
    with pytest.raises(tf.errors.FailedPreconditionError, match=r"bn_moments.*\[3, 1, 1, 3\]"):
        layer = hvd.SyncBatchNormalization(**options, name="bn")
        layer(tf.constant(x[: 2 + 2 * hvd.rank()]), training=True)
    return "checked"


def test_virtual_batches_go_with_those_of_the_other_ranks():
    run_ranks(_virtual_batches, 2)


def _trains() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    random = np.random.default_rng(0)
    features = random.normal(size=(12, 4)).astype(np.float32)
    labels = random.normal(size=(12, 1)).astype(np.float32)

    def train(normalization, part, wrap):
        tf.keras.utils.set_random_seed(3)
        dense = tf.keras.layers.Dense
        model = tf.keras.Sequential([dense(5), normalization, dense(1)])
        model.build((None, 4))
        variables = model.trainable_variables

        @tf.function(autograph=False)
        def step(x, y):
            with wrap(tf.GradientTape()) as tape:
                loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            for variable, gradient in zip(variables, tape.gradient(loss, variables)):
                variable.assign_sub(0.05 * gradient)

        for _ in range(5):
            step(tf.constant(features[part]), tf.constant(labels[part]))
        return [np.asarray(v) for v in model.weights]

    alone = train(tf.keras.layers.BatchNormalization(), slice(None), lambda tape: tape)
    mine = slice(hvd.rank(), None, 2)
    layer = hvd.SyncBatchNormalization()
    for ours, theirs in zip(train(layer, mine, hvd.DistributedGradientTape), alone):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_training_equals_one_process():
    run_ranks(_trains, 2)


def _sends_little() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    x = tf.constant([[float(hvd.rank())]])
    layer = hvd.SyncBatchNormalization(momentum=0.0)

    def step(data):
        with tf.GradientTape() as tape:
            tape.watch(data)
            y = layer(data, training=True)
        return tape.gradient(y, data)

    graph = tf.function(step, autograph=False).get_concrete_function(x).graph
    ops = [op.type for op in graph.get_operations() if op.type.startswith("Horovod")]
    assert ops == ["HorovodAllreduce"] * 2  # forward and backward

    np.testing.assert_allclose(layer(x, training=True), (2 * x - 1) * 0.5 / np.sqrt(0.251))
    frozen = hvd.SyncBatchNormalization(trainable=False)
    if hvd.rank() == 0:  # inference takes no other rank
        np.testing.assert_allclose(layer(x + 1.5), 1.0 / np.sqrt(0.251), rtol=1e-6)
        np.testing.assert_allclose(layer(x, training=False), -0.5 / np.sqrt(0.251), rtol=1e-6)
        np.testing.assert_allclose(frozen(x + 1.0, training=True), 1.0 / np.sqrt(1.001), rtol=1e-6)
    hvd.barrier()


def test_one_allreduce_in_training_and_none_at_inference():
    run_ranks(_sends_little, 2)


def _session() -> None:
    """A graph whose one output is fed with both values of `training`."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None, 1])
        training = v1.placeholder(tf.bool, [])
        layer = hvd.SyncBatchNormalization(momentum=0.0)
        y = layer(x, training=training)
        (gradient,) = tf.gradients(y * y * y, x)
        session.run(v1.global_variables_initializer())
        feed = {x: [[0.0], [2.0]] if hvd.rank() == 0 else [[4.0]], training: True}
        got, slope, _ = session.run([y, gradient, layer.updates], feed)
        whole = np.array([[0.0], [2.0], [4.0]], np.float32)
        deviation = np.sqrt(whole.var() + 1e-3)
        mine = slice(0, 2) if hvd.rank() == 0 else slice(2, 3)
        np.testing.assert_allclose(got, ((whole - 2) / deviation)[mine], rtol=1e-5)
        assert np.isfinite(slope).all()
        if hvd.rank() == 0:
            alone = session.run(y, {x: [[5.0]], training: False})
            np.testing.assert_allclose(alone, [[3.0 / deviation]], rtol=1e-5)
        hvd.broadcast_object(None)  # until rank 0 is through


def test_a_session_may_evaluate_on_one_rank():
    run_ranks(_session, 2, env=models.keras_2_environment())


def _refuses() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

    with pytest.raises(ValueError, match=r"init\(\) first"):
        hvd.SyncBatchNormalization()(tf.constant([[1.0]]), training=True)
    hvd.init()
    assert hvd.SyncBatchNormalization is SyncBatchNormalization
    assert issubclass(SyncBatchNormalization, tf.keras.layers.BatchNormalization)
    for options in ({"fused": True}, {"synchronized": True}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}=True"):
            hvd.SyncBatchNormalization(**options)
    with pytest.raises((TypeError, ValueError), match="no_such_option"):
        hvd.SyncBatchNormalization(no_such_option=1)
    tf.keras.backend.clear_session()
    layers = [hvd.SyncBatchNormalization(fused=None), hvd.SyncBatchNormalization()]
    assert [layer.name for layer in layers] == [
        "sync_batch_normalization",
        "sync_batch_normalization_1",
    ]
    twin = type(layers[0]).from_config(layers[0].get_config())
    assert isinstance(twin, SyncBatchNormalization) and twin.name == layers[0].name


def test_wrong_options_are_refused():
    run_ranks(_refuses, 2)


def _saves(folder: str) -> list[float] | None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    tf.keras.utils.set_random_seed(1)
    inputs = tf.keras.Input((3,))
    outputs = hvd.SyncBatchNormalization(name="bn")(tf.keras.layers.Dense(3)(inputs))
    model = tf.keras.Model(inputs, outputs)
    # An object: Keras 3 cannot load "mse" from its own .h5.
    model.compile("sgd", tf.keras.losses.MeanSquaredError())
    x = np.random.default_rng(hvd.rank()).normal(size=(8, 3)).astype(np.float32)
    model.fit(x, x, epochs=2, verbose=0)
    if hvd.rank() == 1:
        return None
    model.save(f"{folder}/model.keras")
    model.save(f"{folder}/model.h5")
    tf.saved_model.save(model, f"{folder}/saved")
    if _keras_2():
        model.save(f"{folder}/tf")
    else:
        model.export(f"{folder}/export", verbose=False)
    again = {"BatchNormalization": hvd.SyncBatchNormalization}
    for name in ("model.keras", "model.h5", *(["tf"] if _keras_2() else [])):
        loaded = tf.keras.models.load_model(f"{folder}/{name}", custom_objects=again)
        assert isinstance(loaded.get_layer("bn"), hvd.SyncBatchNormalization), name
    probe = np.ones((1, 3), np.float32)
    return [float(v) for v in model(probe, training=False).numpy().ravel()]


_LOADS = """
import json, os, sys
sys.modules["horovod"] = None  # so that importing it fails
import numpy as np, tensorflow as tf
folder, probe, found = sys.argv[1], tf.ones((1, 3)), {}
for name in sorted(os.listdir(folder)):
    path = os.path.join(folder, name)
    if name in ("saved", "export"):
        module = tf.saved_model.load(path)
        call = module.serve if name == "export" else module.signatures["serving_default"]
        result = call(probe)
        value = next(iter(result.values())) if isinstance(result, dict) else result
    else:
        model = tf.keras.models.load_model(path)
        assert type(model.get_layer("bn")) is tf.keras.layers.BatchNormalization, name
        model.compile("sgd", "mse")
        value = model(probe, training=False)
        model.fit(np.ones((4, 3)), np.ones((4, 3)), verbose=0)
    found[name] = np.ravel(value).tolist()
print(json.dumps(found))
"""


def check_a_saved_model(folder: str, env: dict[str, str]) -> None:
    """Fails unless a model loads that a rank has saved, both under some environment variables."""
    want, _ = run_ranks(_saves, 2, folder, timeout_s=90, env=env)
    loading = subprocess.run(
        [sys.executable, "-c", _LOADS, folder],
        env={**os.environ, **env},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert loading.returncode == 0, loading.stderr[-3000:]
    found = json.loads(loading.stdout.splitlines()[-1])
    assert len(found) == 4
    for name, got in found.items():
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=name)


def test_a_saved_model_loads_where_the_package_is_not(tmp_path):
    check_a_saved_model(str(tmp_path), {})
