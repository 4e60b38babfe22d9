"""TensorBoardHook, read back by TensorBoard's own reader."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from tests.harness.events import scalars_of
from tests.harness.pool import run_ranks

STEPS, SAVE_STEPS, RATE, START = 25, 10, 0.25, 8.0
WRITTEN_AT = [1, 11, 21]


def _train(logdir: str, loss: str, times: bool):
    """Trains w down from START with gradient 1; the loss of a step is w before it.

    Args:
      logdir: of the hook.
      loss: how it finds the loss: "tensor", "name", "collection" or "nothing".
      times: whether it writes those of collectives.

    Returns:
      The losses of all steps, and on rank 0 what TensorBoard reads.
    """
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        weight = v1.get_variable("w", initializer=START)
        total = tf.identity(weight, name="total")
        if loss == "collection":
            # As Estimator has it: the parts, twice the whole, and nothing of it counts twice.
            half = total / 2
            v1.losses.add_loss(half)
            total = half + half
            for _ in range(2):
                v1.losses.add_loss(total)
            v1.losses.add_loss(tf.constant(100.0, tf.float64))
        optimizer = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE))
        step = v1.train.get_or_create_global_step()
        with tf.control_dependencies([total]):  # read before the step
            train = optimizer.minimize(total, global_step=step)
        hook = hvd.TensorBoardHook(
            logdir,
            SAVE_STEPS,
            loss={"tensor": total, "name": "total"}.get(loss),
            collective_times=times,
        )
        hooks = [hvd.BroadcastGlobalVariablesHook(0), hook]
        losses = []
        with v1.train.MonitoredTrainingSession(hooks=hooks, log_step_count_steps=None) as session:
            for _ in range(STEPS):
                losses.append(float(session.run([total, train])[0]))
    said = [str(one.message) for one in warned if "no loss is written" in str(one.message)]
    assert len(said) == (1 if loss == "nothing" and hvd.rank() == 0 else 0)
    return losses, scalars_of(logdir) if hvd.rank() == 0 else None


@pytest.mark.smoke
@pytest.mark.parametrize("loss", ["tensor", "name", "collection", "nothing"])
def test_rank_0_writes_what_tensorboard_reads(loss, tmp_path):
    (losses, scalars), _ = run_ranks(_train, 2, str(tmp_path), loss, False)
    assert len(list(tmp_path.glob("events.*"))) == 1, "rank 0 alone writes"
    if loss == "nothing":
        assert list(scalars) == ["global_step/sec"]
    else:
        assert set(scalars) == {"loss", "global_step/sec"}
        more = 100 if loss == "collection" else 0
        assert scalars["loss"] == [(step, losses[step - 1] + more) for step in WRITTEN_AT]
    assert [step for step, _ in scalars["global_step/sec"]] == WRITTEN_AT[1:]
    assert all(rate > 0 for _, rate in scalars["global_step/sec"])


def test_it_writes_the_times_of_collectives(tmp_path):
    (_, scalars), _ = run_ranks(_train, 2, str(tmp_path), "tensor", True)
    assert set(scalars) == {
        "loss",
        "global_step/sec",
        "collective_seconds/all",
        "collective_seconds/allreduce",
    }
    for tag in ("all", "allreduce"):
        times = scalars[f"collective_seconds/{tag}"]
        assert [step for step, _ in times] == WRITTEN_AT
        assert all(0 < seconds < 60 for _, seconds in times)


def _bad_arguments(logdir: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    with pytest.raises(ValueError, match=r"hvd\.init"):
        hvd.TensorBoardHook(logdir)
    hvd.init()
    v1 = tf.compat.v1
    for wrong in (0, None, 1.5, "9"):
        with pytest.raises(ValueError, match="save_steps="):
            hvd.TensorBoardHook(logdir, save_steps=wrong)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(logdir).parent)  # where a hook that is not refused writes
        for wrong in (None, 3, ""):
            with pytest.raises(ValueError, match="logdir="):
                hvd.TensorBoardHook(wrong)
    for wrong in (3.5, b"loss", [tf.constant(1.0)], lambda: 1.0):
        with pytest.raises(ValueError, match=r"loss=.*; pass a tensor"):
            hvd.TensorBoardHook(logdir, loss=wrong)
    with tf.Graph().as_default():
        elsewhere = tf.constant(1.0)
    with tf.Graph().as_default():
        v1.train.get_or_create_global_step()
        v1.get_variable("held", initializer=1.0, use_resource=True)
        for loss, words in (
            ("held", "'held:0' is of dtype resource.* pass the variable itself"),
            (tf.constant("text", name="text"), "'text:0' is of dtype string"),
            (elsewhere, "is not of the graph"),
            ("lost", "loss='lost': the graph has no such tensor"),
            (tf.zeros([3], name="rows"), r"'rows:0' has shape \(3,\)"),
        ):
            with pytest.raises(ValueError, match=words):
                hvd.TensorBoardHook(logdir, loss=loss).begin()
        # Rank 0 alone would take part in a collective that the training does not need.
        weight = v1.get_variable("w", initializer=1.0)
        shared = hvd.allreduce(weight * 2.0, name="of_the_model")
        sgd = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.1))
        sgd.minimize(shared * weight)
        hvd.TensorBoardHook(f"{logdir}-writes", loss=shared + 1.0).begin()
        chosen = tf.cond(weight > 0, lambda: hvd.allreduce(weight), lambda: weight)
        with tf.control_dependencies([hvd.barrier()]):
            waited = tf.identity(weight)
        for loss, words in (
            (2.0 * hvd.allreduce(weight, name="mean"), r"'mean' \(HorovodAllreduce\)"),
            (tf.identity(chosen), r"'cond' \(HorovodAllreduce\)"),
            (waited, r"'HorovodBarrier' \(HorovodBarrier\)"),
        ):
            with pytest.raises(ValueError, match=f"computed from {words}"):
                hvd.TensorBoardHook(logdir, loss=loss).begin()
    assert not Path(logdir).exists()


def test_bad_arguments_are_refused_on_every_rank(tmp_path):
    run_ranks(_bad_arguments, 2, str(tmp_path / "none"))


def _runs_that_do_not_train(logdir: str):
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        count = v1.assign_add(step, 1)
        look = tf.constant(1)
        hook = hvd.TensorBoardHook(logdir, save_steps=4, loss=tf.constant(2.0))
        for _ in range(2):  # sessions, with the same hook
            with v1.train.SingularMonitoredSession(hooks=[hook]) as session:
                for _ in range(5):
                    session.run(count)
                    for _ in range(3):
                        session.run(look)
    return scalars_of(logdir) if hvd.rank() == 0 else None


def test_steps_count_and_not_runs(tmp_path):
    scalars, _ = run_ranks(_runs_that_do_not_train, 2, str(tmp_path))
    # Each session counts from 0.
    assert [step for step, _ in scalars["loss"]] == [1, 5, 1, 5]


def _no_step_is_counted(logdir: str, there_is_one: bool):
    """Trains as a program that gives `minimize` no global step."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        weight = v1.get_variable("w", initializer=START)
        if there_is_one:
            v1.train.get_or_create_global_step()
        loss = tf.identity(weight)
        train = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(RATE)).minimize(loss)
        hook = hvd.TensorBoardHook(logdir, SAVE_STEPS, loss=loss, collective_times=True)
        with v1.train.SingularMonitoredSession(hooks=[hook]) as session:
            for _ in range(STEPS):
                session.run(train)
    said = [str(one.message) for one in warned if "the global step stays 0" in str(one.message)]
    assert len(said) == (1 if there_is_one and hvd.rank() == 0 else 0), said
    return scalars_of(logdir) if hvd.rank() == 0 else None


@pytest.mark.parametrize("there_is_one", [False, True])
def test_runs_count_where_no_step_does(there_is_one, tmp_path):
    scalars, _ = run_ranks(_no_step_is_counted, 2, str(tmp_path), there_is_one)
    first = 0 if there_is_one else 1
    expected = [first + runs for runs in (0, SAVE_STEPS, 2 * SAVE_STEPS)]
    assert [step for step, _ in scalars["loss"]] == expected
