"""Estimator on two ranks: restarts, early ends, evaluation, and models for those without us."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness.events import scalars_of
from tests.harness.pool import run_ranks
from tests.harness.standard_error import standard_error

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None,
    reason="this TensorFlow has no Estimator",
)

EXAMPLES, BATCH = 22, 4
SHARES = (slice(0, 17), slice(17, EXAMPLES))  # of rank 0 and rank 1: 5 batches and 2
RANDOM = np.random.default_rng(6)
X = RANDOM.normal(size=(EXAMPLES, 2)).astype(np.float32)
Y = (X @ [[1.0], [-2.0]] + 0.3 * RANDOM.normal(size=(EXAMPLES, 1))).astype(np.float32)


def _model_fn(features: Any, labels: Any, mode: str) -> Any:
    """Whether a point lies above 0, by a line; a ref and a resource variable."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    start = hvd.rank() * 10.0
    w = v1.get_variable("w", initializer=[[start], [start]], use_resource=False)
    b = v1.get_variable("b", initializer=[start], use_resource=True)
    value = tf.matmul(features["x"], w) + b
    if mode == tf.estimator.ModeKeys.PREDICT:
        output = tf.estimator.export.PredictOutput({"y": value})
        return tf.estimator.EstimatorSpec(mode, {"y": value}, export_outputs={"y": output})
    # As programs have it: the parts go to the collection by themselves, and the sum is the loss.
    v1.losses.mean_squared_error(labels, value)
    v1.losses.absolute_difference(labels, value, weights=0.5)
    loss = v1.losses.get_total_loss()
    hits = tf.keras.metrics.BinaryAccuracy(threshold=0.0)
    hits.update_state(labels > 0, value)
    return tf.estimator.EstimatorSpec(
        mode,
        loss=loss,
        train_op=hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.05)).minimize(
            loss, global_step=v1.train.get_global_step()
        ),
        eval_metric_ops={"auc": v1.metrics.auc(labels > 0, tf.sigmoid(value)), "hits": hits},
    )


def _estimator(folder: str, save_steps: int | None = None) -> Any:
    import tensorflow as tf

    return tf.estimator.Estimator(
        _model_fn,
        folder,
        tf.estimator.RunConfig(
            save_checkpoints_steps=save_steps, save_checkpoints_secs=None, log_step_count_steps=None
        ),
    )


def _input(share: slice, repeat: int | None = 1) -> Any:
    import tensorflow as tf

    def input_fn() -> Any:
        dataset = tf.data.Dataset.from_tensor_slices(({"x": X[share]}, Y[share]))
        return dataset.batch(BATCH).repeat(repeat)

    return input_fn


def _hooks() -> list[Any]:
    import horovod.tensorflow as hvd

    return [hvd.BroadcastGlobalVariablesHook(0)]


def _step_of(folder: str) -> int:
    import tensorflow as tf

    return int(tf.train.load_variable(folder, "global_step"))


def _restarts(folder: str) -> tuple[int, list[Any]]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    folder = f"{folder}/rank{hvd.rank()}"
    first = _estimator(folder, 100)
    first.train(_input(slice(None), None), max_steps=6, hooks=_hooks())
    # Rank 0 goes on in its folder, the others begin with none.
    again = folder if hvd.rank() == 0 else f"{folder}-again"
    second = _estimator(again, 100).train(_input(slice(None), None), max_steps=9, hooks=_hooks())
    values = [second.get_variable_value(name) for name in sorted(second.get_variable_names())]
    assert tf.train.latest_checkpoint(again)
    return _step_of(again), values


def test_a_restart_from_a_checkpoint_that_rank_0_alone_has(tmp_path):
    (step, values), (step_of_1, values_of_1) = run_ranks(_restarts, 2, str(tmp_path))
    assert step == step_of_1 == 9
    assert len(values) == 9, "w, b, two slots each, two powers, and the step"
    for one, other in zip(values, values_of_1):
        np.testing.assert_array_equal(one, other)


def _input_ends_early(folder: str) -> tuple[int, list[str]]:
    import horovod.tensorflow as hvd

    hvd.init()
    is_root = hvd.rank() == 0
    estimator = _estimator(f"{folder}/rank{hvd.rank()}", 100)
    with standard_error() as lines:
        estimator.train(_input(SHARES[hvd.rank()], None if is_root else 2), hooks=_hooks())
    return _step_of(estimator.model_dir), [line for line in lines if "training ends" in line]


def test_when_a_ranks_input_ends_all_stop_at_the_same_step_and_save(tmp_path):
    (step, lines), (step_of_1, lines_of_1) = run_ranks(_input_ends_early, 2, str(tmp_path))
    assert step == step_of_1 == 4
    assert len(lines) == 1 and "rank 1" in lines[0]
    assert lines_of_1 == []


def _evaluates(folder: str) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the evaluation of all ranks' shares, and that of all the data on this rank."""
    import horovod.tensorflow as hvd

    hvd.init()
    _estimator(f"{folder}/{hvd.rank()}", 100).train(_input(slice(None)), hooks=_hooks())
    # Rank 1 has nothing to restore.
    folder = f"{folder}/0" if hvd.rank() == 0 else f"{folder}/none"
    hooks = [*_hooks(), hvd.MetricAverageHook()]
    shared = _estimator(folder).evaluate(_input(SHARES[hvd.rank()]), hooks=hooks)
    whole = _estimator(folder).evaluate(_input(slice(None)), hooks=_hooks())
    return shared, whole


def test_metrics_are_those_of_one_process_with_all_samples(tmp_path):
    results = run_ranks(_evaluates, 2, str(tmp_path))
    assert results[0][0] == results[1][0]
    shared, whole = results[0]
    for name in ("auc", "hits", "global_step"):
        assert shared[name] == pytest.approx(whole[name], rel=1e-6)
    assert 0 < whole["hits"] < 1


def _trains_and_evaluates(folder: str, everywhere: bool) -> tuple[list[int], dict[str, float]]:
    """Returns the steps at which this rank evaluated, and what came out last."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    evaluated = []

    class Notes(tf.compat.v1.train.SessionRunHook):
        def end(self, session):
            evaluated.append(int(session.run(tf.compat.v1.train.get_global_step())))

    hooks = [Notes()]
    if everywhere:
        hooks = [*_hooks(), hvd.MetricAverageHook(), Notes()]
    estimator = _estimator(f"{folder}/{rank}", 4 if everywhere or rank == 0 else None)
    train = tf.estimator.TrainSpec(_input(SHARES[rank], None), max_steps=10, hooks=_hooks())
    share = SHARES[rank] if everywhere else slice(None)
    evaluation = tf.estimator.EvalSpec(
        _input(share), steps=None, hooks=hooks, throttle_secs=0, start_delay_secs=0
    )
    if not everywhere and rank != 0:
        estimator.train(train.input_fn, hooks=train.hooks, max_steps=train.max_steps)
        return evaluated, {}
    result, _ = tf.estimator.train_and_evaluate(estimator, train, evaluation)
    return evaluated, result


def test_train_and_evaluate_on_rank_0_alone(tmp_path):
    (steps, result), (steps_of_1, _) = run_ranks(_trains_and_evaluates, 2, str(tmp_path), False)
    assert steps == [4, 8, 10] and steps_of_1 == []
    assert result["global_step"] == 10


def test_train_and_evaluate_on_all_ranks(tmp_path):
    (steps, result), (steps_of_1, of_1) = run_ranks(_trains_and_evaluates, 2, str(tmp_path), True)
    assert steps == steps_of_1 == [4, 8, 10]
    assert result == of_1 and result["global_step"] == 10


LOADS_WITHOUT_US = """
import sys
for name in list(sys.modules):
    assert not name.startswith("horovod")
sys.modules["horovod"] = None  # an import raises ImportError
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
x = np.load(sys.argv[2])
np.save(sys.argv[3], model.signatures["y"](x=tf.constant(x))["y"].numpy())
"""


def _exports(folder: str) -> tuple[str, Any, Any]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    estimator = _estimator(f"{folder}/{hvd.rank()}", 100)
    tensorboard = hvd.TensorBoardHook(f"{folder}/events", save_steps=1)
    estimator.train(_input(slice(None)), hooks=[*_hooks(), tensorboard])

    def receiver() -> Any:
        features = {"x": tf.compat.v1.placeholder(tf.float32, [None, 2])}
        return tf.estimator.export.ServingInputReceiver(features, features)

    path = estimator.export_saved_model(f"{folder}/{hvd.rank()}-export", receiver).decode()
    weights = [estimator.get_variable_value(name) for name in ("w", "b")]
    return path, weights, scalars_of(f"{folder}/events") if hvd.rank() == 0 else None


def test_an_exported_model_loads_without_us_and_the_training_shows_in_tensorboard(tmp_path):
    (path, (w, b), scalars), _ = run_ranks(_exports, 2, str(tmp_path))
    np.save(tmp_path / "x.npy", X)
    command = [sys.executable, "-c", LOADS_WITHOUT_US, path, "x.npy", "y.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), X @ w + b, rtol=1e-5)
    assert b"Horovod" not in Path(path, "saved_model.pb").read_bytes()

    # Once, although the collection holds its parts and Estimator adds it again.
    first = np.mean(Y[:BATCH] ** 2) + 0.5 * np.mean(np.abs(Y[:BATCH]))
    assert scalars["loss"][0] == (1, pytest.approx(first, rel=1e-5))
    assert [step for step, _ in scalars["loss"]] == [1, 2, 3, 4, 5, 6]
