"""broadcast_variables, broadcast_global_variables and the session hook."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks


def _eager_and_function() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank = float(hvd.rank())

    def fresh():
        return [
            tf.Variable(rank),
            tf.Variable([[rank, 1.0]]),
            tf.Variable(hvd.rank(), dtype=tf.int64),
            tf.Variable(hvd.rank() == 1),
            tf.Variable(tf.cast([rank], tf.bfloat16), name=f"name_of_rank_{hvd.rank()}"),
        ]

    def check(variables):
        got = [np.asarray(tf.cast(v, tf.float64)).tolist() for v in variables]
        assert got == [1.0, [[1.0, 1.0]], 1.0, 1.0, [1.0]]

    variables = fresh()
    assert hvd.broadcast_variables(variables, root_rank=1) is None
    check(variables)
    variables = fresh()
    tf.function(lambda: hvd.broadcast_variables(variables, 1), autograph=False)()
    check(variables)
    hvd.broadcast_variables([], 0)


@pytest.mark.smoke
def test_broadcast_variables_in_eager_code_and_functions():
    run_ranks(_eager_and_function, 3)


def _twice_in_one_function() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v, w = (tf.Variable([10.0 * hvd.rank() + i]) for i in (1, 2))
    values = [[1.0, 2.0], [11.0, 12.0]]

    @tf.function(autograph=False)
    def one(variable, root):
        hvd.broadcast_([variable], root)

    @tf.function(autograph=False)
    def both(root):
        hvd.broadcast_([v], root)
        hvd.broadcast_([w], root)

    @tf.function(autograph=False)
    def called_twice(root):
        one(v, root)
        one(w, root)

    @tf.function
    def in_a_loop(root):
        for _ in tf.range(20):
            hvd.broadcast_([v, w], root)
            v.assign_add([0.0])

    for function in (both, called_twice, in_a_loop):
        for root in (0, 1):
            v.assign([10.0 * hvd.rank() + 1])
            w.assign([10.0 * hvd.rank() + 2])
            function(root)
            assert [v.numpy()[0], w.numpy()[0]] == values[root], (function, root)


def test_several_in_place_at_once_each_find_their_own():
    run_ranks(_twice_in_one_function, 2)


def _global_variables_in_a_session() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        if hvd.rank() == 1:  # built in another order: matched by name
            b = v1.get_variable("b", initializer=[1.0, 1.0], use_resource=True)
            a = v1.get_variable("a", initializer=1, use_resource=False)
        else:
            a = v1.get_variable("a", initializer=0, use_resource=False)
            b = v1.get_variable("b", initializer=[0.0, 0.0], use_resource=True)
        local = v1.get_variable(
            "local", initializer=hvd.rank(), collections=[v1.GraphKeys.LOCAL_VARIABLES]
        )
        operation = hvd.broadcast_global_variables(1)
        session.run([v1.global_variables_initializer(), v1.local_variables_initializer()])
        for _ in range(3):
            session.run(operation)
        assert session.run(a) == 1
        assert session.run(b).tolist() == [1.0, 1.0]
        assert session.run(local) == hvd.rank()


@pytest.mark.smoke
def test_broadcast_global_variables_takes_ref_and_resource_variables():
    run_ranks(_global_variables_in_a_session, 2)


def _train(hook, folder: str | None, start: float, steps: int) -> list[np.ndarray]:
    """Trains some steps in a new graph; returns all global variables as the session found them."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        weights = [
            v1.get_variable(f"w{resource}", initializer=[start, 2.0], use_resource=resource)
            for resource in (False, True)
        ]
        loss = tf.add_n([tf.reduce_sum(w * w) for w in weights])
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(v1.train.AdamOptimizer(0.1))
        train = optimizer.minimize(loss, global_step=step)
        variables = sorted(v1.global_variables(), key=lambda v: v.name)
        with v1.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=[hook], save_checkpoint_steps=1, log_step_count_steps=None
        ) as session:
            found = session.run(variables)
            for _ in range(steps):
                session.run(train)
        return found


def _restored_on_rank_0_alone(folder: str) -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    rank = hvd.rank()
    hook = hvd.BroadcastGlobalVariablesHook(0)
    mine = folder if rank == 0 else None

    # The first session: nothing to restore, so the root's initial values win.
    found = _train(hook, mine, start=float(rank), steps=4)
    assert [v.tolist() for v in found if v.shape == (2,)].count([0.0, 2.0]) == 2

    # The second, in another graph with the same hook: rank 0 restores, the others start anew.
    found = _train(hook, mine, start=100.0 + rank, steps=1)
    assert [int(v) for v in found if v.dtype == np.int64] == [4], "the global step"
    assert max(np.abs(v).max() for v in found if v.dtype == np.float32) < 50, "not restored"
    slots = [v for v in found if v.shape == (2,)]
    assert len(slots) == 6, "two variables with two slots each"
    for value in found:
        everywhere = hvd.allgather(value[None]).numpy()
        np.testing.assert_array_equal(everywhere, np.stack([value] * hvd.size()))


@pytest.mark.smoke
def test_hook_gives_all_what_rank_0_restored(tmp_path):
    run_ranks(_restored_on_rank_0_alone, 2, str(tmp_path), timeout_s=90)


def _hook_with_a_device() -> float:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    hook = hvd.BroadcastGlobalVariablesHook(root_rank=1, device="/cpu:0")
    assert isinstance(hook, tf.compat.v1.train.SessionRunHook)
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=float(hvd.rank()))
        with tf.compat.v1.train.SingularMonitoredSession(hooks=[hook]) as session:
            return float(session.run(variable))


def test_hook_takes_a_root_and_a_device():
    assert run_ranks(_hook_with_a_device, 2) == [1.0, 1.0]


def _what_cannot_be_broadcast() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, v1 = hvd.rank(), tf.compat.v1
    words = "'words:0' is of dtype string, which collectives do not take; leave it out"
    mine, text = tf.Variable(float(rank)), tf.Variable("x", name="words")
    for broadcast in (hvd.broadcast_, hvd.broadcast_variables):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            broadcast([mine, text], 0)
        for wrong, match in (
            ([None], r"variables\[0\] is None"),
            ([mine, 3.0], r"variables\[1\] is 3\.0, which is no variable"),
            ([tf.constant(1.0)], r"variables\[0\] is .* no variable"),
            (mine, "pass a list of variables"),
            (None, "variables=None; pass a list"),
        ):
            with pytest.raises(ValueError, match=match):
                broadcast(wrong, 0)
        # On one rank alone: the others do not wait.
        if rank == 1:
            with pytest.raises(ValueError, match="is None"):
                broadcast([mine, None], 0)
        else:
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 1.*is None"):
                broadcast([mine, mine], 0)
        assert mine.numpy() == rank
        if rank == 1:
            with pytest.raises(ValueError, match="is None"):
                broadcast({"a": None, "b": mine}.values(), 0)
        else:
            with pytest.raises(tf.errors.FailedPreconditionError, match=r"rank 1.*is None"):
                broadcast({"a": mine, "b": mine}.values(), 0)
        mine.assign(float(rank))
        broadcast([mine], 1)  # nothing is left over
        assert mine.numpy() == 1.0
        mine.assign(float(rank))
    for resource in (False, True):
        with tf.Graph().as_default():
            v1.get_variable("number", initializer=1.0)
            v1.get_variable("words", initializer="x", use_resource=resource)
            for make in (
                lambda: hvd.broadcast_global_variables(0),
                lambda: hvd.BroadcastGlobalVariablesHook(0).begin(),
                lambda: hvd.broadcast_variables(v1.global_variables(), 0, inplace=True),
            ):
                with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                    make()


def test_what_cannot_be_broadcast_is_named():
    run_ranks(_what_cannot_be_broadcast, 2)
