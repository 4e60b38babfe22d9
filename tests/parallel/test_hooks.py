"""Hooks of `tf.compat.v1` sessions: one start, one end, and the metrics of all ranks' data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.harness.standard_error import standard_error

IMAGES = 5  # until rank 1's input ends
RATE, MOMENTUM = 0.1, 0.9
SAMPLES = 60
SHARES = [(slice(0, 41), slice(41, SAMPLES)), (slice(0, SAMPLES), slice(0, 0))]  # by rank


def _train_op(images: int | None = None, regularized: bool = False, **options: Any):
    """Builds y = w x over `images` examples, without end if None.

    With a regularizer there is a variable whose gradient needs no input. The options are those of
    DistributedOptimizer, op by name.
    """
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    dataset = tf.data.Dataset.from_tensors(1.0).repeat(images)
    x = v1.data.make_one_shot_iterator(dataset).get_next()
    weights = [
        v1.get_variable(f"w{resource}", initializer=hvd.rank() + 1.0, use_resource=resource)
        for resource in (False, True)
    ]
    options["op"] = getattr(hvd, options.get("op", "Average"))
    optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(RATE, MOMENTUM), **options)
    step = v1.train.get_or_create_global_step()
    loss = x * tf.add_n(weights)
    if regularized:
        loss += v1.get_variable("regularized", initializer=1.0) ** 2
    return optimizer.minimize(loss, global_step=step)


def _input_ends_early(
    folder: str, regularized: bool, options: dict[str, Any]
) -> tuple[int, int, dict[str, float], list[str]]:
    """Returns the steps that ran, the global step and the weights at the end, and the warnings."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    is_root = hvd.rank() == 0
    steps = 0
    with tf.Graph().as_default(), standard_error() as lines:
        train = _train_op(None if is_root else IMAGES, regularized, **options)
        with tf.compat.v1.train.MonitoredTrainingSession(
            checkpoint_dir=folder if is_root else f"{folder}/{hvd.rank()}",
            hooks=[hvd.BroadcastGlobalVariablesHook(0)],
            save_checkpoint_steps=100,
            log_step_count_steps=None,
        ) as session:
            while not session.should_stop():
                session.run(train)
                steps += 1
        names = [variable.op.name for variable in tf.compat.v1.trainable_variables()]
    saved = tf.train.load_checkpoint(folder if is_root else f"{folder}/{hvd.rank()}")
    weights = {name: float(saved.get_tensor(name)) for name in names}
    ended = [line for line in lines if "training ends" in line]
    return steps, int(saved.get_tensor("global_step")), weights, ended


def _trained(steps: int, regularized: bool) -> dict[str, float]:
    """The weights of one process, which ranks with the same examples have as well."""
    weights = {"wFalse": 1.0, "wTrue": 1.0, **({"regularized": 1.0} if regularized else {})}
    slots = dict.fromkeys(weights, 0.0)
    for _ in range(steps):
        for name, weight in weights.items():
            gradient = 2 * weight if name == "regularized" else 1.0
            slots[name] = MOMENTUM * slots[name] + gradient
            weights[name] = weight - RATE * slots[name]
    return weights


@pytest.mark.smoke
@pytest.mark.parametrize("op", ["Average", "Adasum"])
@pytest.mark.parametrize("regularized", [False, True])
def test_when_a_ranks_input_ends_all_stop_at_the_same_step_and_save(tmp_path, regularized, op):
    ends = run_ranks(_input_ends_early, 2, str(tmp_path), regularized, {"op": op})
    assert [end[:2] for end in ends] == [(IMAGES, IMAGES)] * 2
    assert ends[0][2] == ends[1][2] == pytest.approx(_trained(IMAGES, regularized), rel=1e-5)
    (line,) = ends[0][3]
    assert "rank 1" in line and "ended in order" in line
    assert ends[1][3] == []


def test_an_adasum_of_several_passes_that_fails_leaves_the_start_of_its_step(tmp_path):
    options = {"op": "Adasum", "backward_passes_per_step": 2}
    ends = run_ranks(_input_ends_early, 2, str(tmp_path), True, options)
    assert [end[:2] for end in ends] == [(IMAGES, IMAGES)] * 2
    # The last pass of rank 1 waits for its second; rank 0 took both, and undid them.
    assert ends[0][2] == pytest.approx(_trained(IMAGES - 1, True), rel=1e-5)
    assert ends[1][2] == pytest.approx(_trained(IMAGES, True), rel=1e-5)


def _root_never_trains(checks_should_stop: bool, trains: bool) -> tuple[str, int, list[str]]:
    """As when a checkpoint that rank 0 alone has is past the last step."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    steps = 0
    outcome = "no error"
    if hvd.rank() == 0:
        return outcome, steps, []
    with tf.Graph().as_default(), standard_error() as lines:
        train = _train_op() if trains else tf.Variable(1.0).op
        try:
            with tf.compat.v1.train.MonitoredTrainingSession(
                hooks=[hvd.BroadcastGlobalVariablesHook(0)], log_step_count_steps=None
            ) as session:
                while steps < 3 and not (checks_should_stop and session.should_stop()):
                    session.run(train)
                    steps += 1
        except tf.errors.OpError as error:
            outcome = type(error).__name__
    # TensorFlow 2.21 writes of the failed op as well.
    ours = [line for line in lines if line.startswith(("horovod:", "[horovod"))]
    return outcome, steps, [line for line in ours if "ended in order" in line]


@pytest.mark.parametrize("checks_should_stop", [True, False])
def test_when_the_root_has_nothing_to_train_the_others_end_too(checks_should_stop):
    outcome, steps, lines = run_ranks(_root_never_trains, 2, checks_should_stop, True)[1]
    assert (outcome, steps) == ("no error", 0)
    assert "rank 0" in lines[0] and "before its first step" in lines[0]
    assert len(lines) == (1 if checks_should_stop else 2)


def test_a_session_that_does_not_train_fails_without_the_root():
    outcome, steps, _ = run_ranks(_root_never_trains, 2, True, False)[1]
    assert (outcome, steps) == ("UnknownError", 0)


def _evaluates_after_it_trained_nothing() -> tuple[int, list[str]]:
    """As `train_and_evaluate` on all ranks, where rank 0 is past the last step."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    steps = 0
    if hvd.rank() == 0:
        return steps, []
    with standard_error() as lines:
        for evaluates in (False, True, True):
            with tf.Graph().as_default():
                hooks = [hvd.BroadcastGlobalVariablesHook(0)]
                if evaluates:
                    v1.get_variable("w", initializer=1.0)
                    run = v1.metrics.mean(tf.constant(1.0))[1]
                    hooks.append(hvd.MetricAverageHook())
                else:
                    run = _train_op()
                with v1.train.MonitoredTrainingSession(
                    hooks=hooks, log_step_count_steps=None
                ) as session:
                    while not session.should_stop():
                        session.run(run)
                        steps += 1
    return steps, [line for line in lines if line.startswith("horovod:")]


def test_after_a_training_that_did_not_begin_nothing_is_evaluated():
    steps, lines = run_ranks(_evaluates_after_it_trained_nothing, 2)[1]
    assert steps == 0
    assert ["training ends" in line for line in lines] == [True, False]
    assert "nothing is evaluated: rank 0" in lines[1]


def _placed_on_a_device() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for device, expected in (("", ""), ("/cpu:0", "/device:CPU:0")):
        with tf.Graph().as_default() as graph:
            _train_op()
            hook = hvd.BroadcastGlobalVariablesHook(0, device)
            hook.begin()
            added = hook.bcast_op
            hook.begin()
            assert hook.bcast_op is added, "a second session of the same graph adds nothing"
            broadcasts = [op for op in graph.get_operations() if op.type == "HorovodBroadcast"]
            assert len(broadcasts) == 5, "two variables with one slot each, and the global step"
            assert {op.device for op in broadcasts} == {expected}


def test_the_hook_places_its_broadcasts():
    run_ranks(_placed_on_a_device, 2)


def _averages_metrics(use_resource: bool) -> list[Any]:
    """Returns the metrics of SHARES by one hook, and those of all samples without it."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    random = np.random.default_rng(4)
    labels = random.integers(0, 2, SAMPLES)
    scores = np.clip(labels * 0.3 + random.random(SAMPLES) * 0.7, 0, 1).astype(np.float32)

    def metrics_of(mine: slice, hooks) -> dict[str, float]:
        with tf.Graph().as_default():
            dataset = tf.data.Dataset.from_tensor_slices((labels[mine], scores[mine])).batch(7)
            label, score = v1.data.make_one_shot_iterator(dataset).get_next()
            with v1.variable_scope("metrics", use_resource=use_resource):
                ops = {
                    "accuracy": v1.metrics.accuracy(label, score > 0.5),
                    "auc": v1.metrics.auc(label, score, num_thresholds=9),
                    "mean": v1.metrics.mean(score),
                    "iou": v1.metrics.mean_iou(label, score > 0.5, num_classes=2),
                    "error": v1.metrics.root_mean_squared_error(tf.cast(label, tf.float32), score),
                }
            final = v1.train.FinalOpsHook({name: value for name, (value, _) in ops.items()})
            updates = [update for _, update in ops.values()]
            with v1.train.SingularMonitoredSession(hooks=[*hooks, final]) as session:
                while not session.should_stop():
                    session.run(updates)
        return {name: float(value) for name, value in final.final_ops_values.items()}

    hook = hvd.MetricAverageHook()
    shared = [metrics_of(shares[hvd.rank()], [hook]) for shares in SHARES]
    return [shared, metrics_of(slice(None), [])]


@pytest.mark.parametrize("use_resource", [False, True])
def test_metrics_are_those_of_one_process_with_all_samples(use_resource):
    for shared, whole in run_ranks(_averages_metrics, 2, use_resource):
        for metrics in shared:
            assert metrics == pytest.approx(whole, rel=1e-6)
        assert 0.5 < whole["accuracy"] < 1 and whole["auc"] < 1, "they say something"


def _chosen_metrics() -> list[float]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="no variables of metrics"):
            hvd.MetricAverageHook().begin()
        sums = [
            v1.get_variable(
                name, initializer=hvd.rank() + 1, collections=[v1.GraphKeys.LOCAL_VARIABLES]
            )
            for name in ("added", "kept")
        ]
        final = v1.train.FinalOpsHook(sums)
        with v1.train.SingularMonitoredSession(
            hooks=[hvd.MetricAverageHook(sums[:1]), final]
        ) as session:
            session.run(sums)
        return [int(value) for value in final.final_ops_values]


def test_only_the_metrics_that_are_given_add_up():
    assert run_ranks(_chosen_metrics, 2) == [[3, 1], [3, 2]]
