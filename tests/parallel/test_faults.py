"""Ranks that die or leave while others wait for them."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.harness.ranks import run_ranks

# Far above what it takes, milliseconds, so that a loaded machine passes; a hang does not.
NOTICED_WITHIN_S = 10.0


def _rank_1_is_killed(mode: str) -> tuple[str, str, float]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    hvd.allreduce([1.0], name="warm")
    if hvd.rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    began_s = time.monotonic()
    try:
        if mode == "eager":
            hvd.allreduce([1.0], name="x")
        elif mode == "function":
            tf.function(lambda: hvd.allreduce([1.0], name="x"), autograph=False)()
        else:
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                session.run(hvd.allreduce([1.0], name="x"))
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - began_s
    return "none", "", 0.0


@pytest.mark.smoke
@pytest.mark.parametrize(
    "mode, expected",
    [
        ("eager", "HorovodInternalError"),
        ("function", "UnknownError"),
        ("session", "UnknownError"),
    ],
)
def test_a_killed_rank_ends_the_others_and_is_named(mode, expected):
    results = run_ranks(_rank_1_is_killed, 3, mode, may_die=[1])
    assert results[1] is None
    for kind, text, took_s in (results[0], results[2]):
        assert kind == expected, text
        assert "rank 1" in text
        assert took_s < NOTICED_WITHIN_S


def _nan_on_rank_1() -> str:
    """Rank 1's session fails on another op while its allreduce is pending."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        value = tf.compat.v1.placeholder(tf.float32, [2])
        total = hvd.allreduce(value, op=hvd.Sum, name="x")
        check = tf.debugging.check_numerics(tf.math.log(value), "the loss is not finite")
        has_failed = hvd.broadcast(tf.constant(1), 1, name="has failed")
        text = "none"
        if hvd.rank() == 0:
            session.run(has_failed)  # before that, rank 1's "x" waits for ours
        try:
            session.run([total, check], {value: [1.0, 1.0 if hvd.rank() == 0 else -1.0]})
        except tf.errors.OpError as error:
            text = f"{type(error).__name__}: {error.message}"
        if hvd.rank() == 1:
            session.run(has_failed)
        # Both go on in the same process.
        assert list(session.run(total, {value: [1.0, 2.0]})) == [2.0, 4.0]
    return text


def test_a_session_that_fails_elsewhere_ends_on_both_ranks_and_both_go_on():
    waiting, failed = run_ranks(_nan_on_rank_1, 2)
    assert "InvalidArgumentError" in failed and "not finite" in failed
    assert waiting.startswith("FailedPreconditionError") and "'x'" in waiting
    assert "rank 1" in waiting and "cancelled" in waiting


def _rank_1_trains_fewer_steps() -> tuple[int, bool]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    with tf.Graph().as_default():
        weight = tf.compat.v1.get_variable("w", initializer=3.0)
        step = tf.compat.v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(0.1))
        train = optimizer.minimize(weight * weight, global_step=step)
        hooks = [
            hvd.BroadcastGlobalVariablesHook(0),
            tf.compat.v1.train.StopAtStepHook(last_step=3 if hvd.rank() == 1 else 50),
        ]
        steps = 0
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
                steps += 1
    return steps, True


def test_a_rank_that_finishes_in_order_ends_the_others_training_cleanly():
    results = run_ranks(_rank_1_trains_fewer_steps, 2)
    assert results[1] == (3, True)
    steps, ended_without_error = results[0]
    assert ended_without_error
    assert steps == 3


def _rank_1_leaves() -> str:
    import horovod.tensorflow as hvd
    from horovod.common.exceptions import HorovodInternalError

    hvd.init()
    if hvd.rank() == 0:
        with pytest.raises(HorovodInternalError) as caught:
            hvd.allreduce([1.0], name="x")
        return str(caught.value)
    return ""


def test_other_collectives_say_who_finished():
    assert "rank 1" in run_ranks(_rank_1_leaves, 2)[0]
