"""DistributedOptimizer with several backward passes per step, by hand-computed numbers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.harness.pool import run_ranks

PASSES = 6  # divides by 1, 2 and 3
RATE, MOMENTUM = 0.1, 0.9
WAYS = ("ref", "resource", "old control flow", "function", "eager")


def _x(rank: int, number: int) -> float:
    """The factor of `y = w x`, and so the gradient, in one pass of one rank."""
    return (rank + 1.0) * (number + 1.0)


def _expected(size: int, k: int, average: bool, is_sum: bool, updates: bool) -> list[tuple]:
    """(w, slot, global_step) after each pass."""
    w, slot, gathered, history = 1.0, 0.0, 0.0, []
    for number in range(PASSES):
        gathered += sum(_x(rank, number) for rank in range(size)) / (1 if is_sum else size)
        if (number + 1) % k == 0:
            slot = MOMENTUM * slot + (gathered / k if average else gathered)
            w -= RATE * slot
            gathered = 0.0
        history.append((w, slot, (number + 1) // k if updates else number + 1))
    return history


def _something_else(graph: bool) -> None:
    """Adds ops to rank 0 alone, so that TensorFlow numbers what follows differently."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    if hvd.rank() == 0:
        x = tf.constant(1.0)
        choose = lambda y: tf.cond(y > 0, lambda: y, lambda: -y)  # noqa: E731
        (choose if graph else tf.function(choose))(x)


def _in_session(resource: bool, options: dict) -> list[tuple]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        _something_else(graph=True)
        with v1.variable_scope("model", use_resource=resource):
            w = v1.get_variable("w", initializer=1.0)
        step = v1.train.get_or_create_global_step()
        x = v1.placeholder(tf.float32, [])
        optimizer = hvd.DistributedOptimizer(v1.train.MomentumOptimizer(RATE, MOMENTUM), **options)
        train = optimizer.minimize(w * x, global_step=step)
        slot = optimizer.get_slot(w, "momentum")
        assert slot.op.name == "model/w/Momentum"
        assert [v.op.name for v in v1.global_variables()] == [
            "model/w",
            "global_step",
            "model/w/Momentum",
        ]
        # The local variables are not initialised: they do it themselves.
        session.run(v1.global_variables_initializer())
        history = []
        for number in range(PASSES):
            session.run(train, {x: _x(hvd.rank(), number)})
            history.append(tuple(session.run([w, slot, step])))
        assert train in v1.get_collection(v1.GraphKeys.TRAIN_OP)
        session.run(v1.get_collection(v1.GraphKeys.TRAIN_OP), {x: 0.0})
        return history


def _in_eager_code(function: bool, options: dict) -> list[tuple]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    _something_else(graph=False)
    w = tf.Variable(1.0, name="w")
    step = tf.Variable(0, dtype=tf.int64)
    plain = tf.compat.v1.train.MomentumOptimizer(RATE, MOMENTUM)
    optimizer = hvd.DistributedOptimizer(plain, **options)

    def train(x):
        optimizer.minimize(lambda: w * x, global_step=step, var_list=[w])

    @tf.function
    def train_in_two_steps(x):
        pairs = optimizer.compute_gradients(lambda: w * x, [w])
        optimizer.apply_gradients(pairs, global_step=step)

    run = train_in_two_steps if function else train
    history = []
    for number in range(PASSES):
        run(tf.constant(_x(hvd.rank(), number)))
        slot = plain.get_slot(w, "momentum")
        slot = 0.0 if slot is None else slot.numpy()  # in eager code it comes with the first update
        history.append((w.numpy(), slot, step.numpy()))
    return history


def _run(way: str, options: dict) -> list[tuple]:
    import tensorflow as tf

    if way == "old control flow":
        tf.compat.v1.disable_control_flow_v2()
        try:
            return _in_session(True, options)
        finally:
            tf.compat.v1.enable_control_flow_v2()
    if way in ("ref", "resource"):
        return _in_session(way == "resource", options)
    return _in_eager_code(way == "function", options)


def _by_hand() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    for way, k, average, op in itertools.product(
        WAYS, (1, 2, 3), (False, True), (hvd.Sum, hvd.Average)
    ):
        if way == "old control flow" and k != 2:
            continue
        updates = average and op == hvd.Sum
        options = {
            "backward_passes_per_step": k,
            "average_aggregated_gradients": average,
            "op": op,
            "step_counts_updates": updates,
        }
        expected = _expected(hvd.size(), k, average, op == hvd.Sum, updates)
        np.testing.assert_allclose(
            _run(way, options), expected, rtol=1e-5, err_msg=f"{way} {options}"
        )


@pytest.mark.smoke
def test_passes_by_hand():
    run_ranks(_by_hand, 2, timeout_s=300)


def _slices_and_missing_gradients() -> None:
    """Rows of several passes; a variable without gradient; fp16 on the wire; a local variable."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()

    def expected(scale):
        # Pass p of rank r reads rows r and p, twice; each is a gradient of 1.
        table = np.zeros((4, 2))
        for r, p in itertools.product(range(size), range(2)):
            for row in (r, p, p):
                table[row] -= scale
        return table

    for way, dense in itertools.product(("session", "eager"), (False, True)):
        options = {"backward_passes_per_step": 2, "op": hvd.Sum, "sparse_as_dense": dense}
        for extra, tolerance in (({}, 1e-6), ({"compression": hvd.Compression.fp16}, 1e-3)):
            sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)
            optimizer = hvd.DistributedOptimizer(sgd, **options, **extra)
            if way == "eager":
                table, idle, own = tf.Variable(tf.zeros([4, 2])), tf.Variable(5.0), tf.Variable(1.0)
                optimizer.register_local_var(own)
                for p in range(2):
                    assert np.all(table.numpy() == 0)
                    rows = [rank, p, p]

                    def loss(rows=rows, table=table, own=own):
                        return tf.reduce_sum(tf.gather(table, rows)) + own * (rank + 1.0)

                    pairs = optimizer.compute_gradients(loss, [table, idle, own])
                    assert isinstance(pairs[0][0], tf.IndexedSlices) is not dense
                    assert pairs[1][0] is None
                    optimizer.apply_gradients(pairs)
                values = [v.numpy() for v in (table, idle, own)]
            else:
                with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                    table = tf.Variable(tf.zeros([4, 2]))
                    idle, own = tf.Variable(5.0), tf.Variable(1.0)
                    optimizer.register_local_var(own)
                    rows = tf.compat.v1.placeholder(tf.int32, [None])
                    loss = tf.reduce_sum(tf.gather(table, rows)) + own * (rank + 1.0)
                    train = optimizer.minimize(loss, var_list=[table, idle, own])
                    session.run(tf.compat.v1.global_variables_initializer())
                    for p in range(2):
                        session.run(train, {rows: [rank, p, p]})
                    values = session.run([table, idle, own])
            np.testing.assert_allclose(values[0], expected(1.0), rtol=tolerance)
            assert values[1] == 5.0
            np.testing.assert_allclose(values[2], 1.0 - 2 * (rank + 1.0) / size, rtol=1e-6)


def test_slices_missing_gradients_and_local_variables_over_passes():
    run_ranks(_slices_and_missing_gradients, 2, timeout_s=120)


def _counters_are_not_shared() -> None:
    """Two optimizers of one class; one optimizer for two lists; one applied in two parts."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    sgd = tf.compat.v1.train.GradientDescentOptimizer

    def wrapped(k):
        return hvd.DistributedOptimizer(sgd(1.0), backward_passes_per_step=k, op=hvd.Average)

    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        a, b, c, d = variables = [tf.Variable(0.0, name=n) for n in "abcd"]
        loss = a + b + c + d
        two = wrapped(2)
        trains = [
            two.minimize(loss, var_list=[a]),
            wrapped(3).minimize(loss, var_list=[b]),
            two.minimize(loss, var_list=[c]),
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(trains[0])  # a is one pass ahead of c, which has the same optimizer
        seen = []
        for _ in range(3):
            session.run(trains)
            seen.append(session.run(variables[:3]))
        assert np.array_equal(seen, [[-2, 0, 0], [-2, 0, -2], [-4, -3, -2]])

        pairs = two.compute_gradients(a + d, [a, d])
        step = tf.compat.v1.train.get_or_create_global_step()
        parts = [two.apply_gradients(pairs[:1]), two.apply_gradients(pairs[1:], global_step=step)]
        session.run(tf.compat.v1.global_variables_initializer())
        for expected in ([0, 0, 1], [-2, -2, 2], [-2, -2, 3]):
            session.run(parts)
            assert session.run([a, d, step]) == expected

        # Two lists that share a variable are computed before either is applied.
        first = two.compute_gradients(a + d, [a, d])
        second = two.compute_gradients(3.0 * a + b, [b, a])
        clipped = [(tf.clip_by_norm(g, 1.0), v) for g, v in first]
        with pytest.raises(ValueError, match=r"apply_gradients for .*a:0.*2 calls of compute"):
            two.apply_gradients(clipped)
        train_first = two.apply_gradients([clipped[0], first[1]])
        train_second = two.apply_gradients((tf.clip_by_norm(g, 1.0), v) for g, v in second)
        session.run(tf.compat.v1.global_variables_initializer())
        for train, expected in (
            (train_first, [0, 0, 0]),
            (train_second, [0, 0, 0]),
            (train_second, [-1, -1, 0]),
            (train_first, [-2, -1, -2]),
        ):
            session.run(train)
            assert session.run([a, b, d]) == expected

    a, b = tf.Variable(0.0), tf.Variable(0.0)
    two = wrapped(2)
    two.minimize(lambda: a * 1.0, var_list=[a])
    for expected in ([-2, 0], [-2, -2], [-4, -2]):
        two.minimize(lambda: a * 1.0, var_list=[a])
        two.minimize(lambda: b * 1.0, var_list=[b])
        if expected == [-2, 0]:
            assert [a.numpy(), b.numpy()] == expected
    assert [a.numpy(), b.numpy()] == [-4, -2]

    for _ in range(2):
        first = two.compute_gradients(lambda: a * 1.0, [a])
        second = two.compute_gradients(lambda: a * 3.0 + b, [a, b])
        two.apply_gradients(first)
        two.apply_gradients(second)
    assert [a.numpy(), b.numpy()] == [-4 - 2 - 6, -2 - 2]

    other = tf.Variable(0.0, name="other")
    with pytest.raises(ValueError, match=r"apply_gradients.*other.*compute_gradients"):
        two.apply_gradients([(tf.constant(1.0), other)])


def test_optimizers_and_lists_of_variables_have_counters_of_their_own():
    run_ranks(_counters_are_not_shared, 2)


def _monitored(folder: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1

    def train(passes, folder, last_step):
        with tf.Graph().as_default():
            w = v1.get_variable("w", initializer=1.0)
            step = v1.train.get_or_create_global_step()
            adam = v1.train.AdamOptimizer(0.1)
            if passes:
                adam = hvd.DistributedOptimizer(adam, backward_passes_per_step=passes)
            op = adam.minimize(w * (hvd.rank() + 1.0), step)
            hooks = [v1.train.StopAtStepHook(last_step=last_step)]
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=folder, hooks=hooks, log_step_count_steps=None
            ) as session:
                while not session.should_stop():
                    seen = session.run([op, w, step])
            del seen
        path = tf.train.latest_checkpoint(folder)
        return {
            name: tf.train.load_variable(path, name) for name, _ in tf.train.list_variables(path)
        }

    folder = f"{folder}/{hvd.rank()}"
    plain = train(0, f"{folder}-plain", 1)
    first = train(2, folder, 5)
    assert (
        first.keys()
        == plain.keys()
        == {"w", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "global_step"}
    )
    assert first["global_step"] == 5
    np.testing.assert_allclose(
        first["beta1_power"], 0.9**3, rtol=1e-6
    )  # two updates of five passes
    # The fifth pass is forgotten with its session; it takes two more for an update.
    again = train(2, folder, 8)
    np.testing.assert_allclose(again["beta1_power"], 0.9**4, rtol=1e-6)
    np.testing.assert_allclose(again["w"], 1.0 - 3 * 0.1, rtol=1e-5)
    # A program without wrapper restores what one with it has saved, and the reverse.
    assert train(0, folder, 9)["global_step"] == 9
    assert train(2, f"{folder}-plain", 3)["global_step"] == 3


def test_a_monitored_session_counts_passes_and_its_checkpoints_are_the_plain_ones(tmp_path):
    run_ranks(_monitored, 2, str(tmp_path), timeout_s=120)


def _one_ends_early() -> int:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=1.0)
        v1.train.get_or_create_global_step()
        sgd = v1.train.GradientDescentOptimizer(1.0)
        train = hvd.DistributedOptimizer(sgd, backward_passes_per_step=2).minimize(w * 1.0)
        passes = 0
        with v1.train.MonitoredTrainingSession(log_step_count_steps=None) as session:
            while not session.should_stop() and passes < (4 if hvd.rank() == 1 else 100):
                session.run(train)
                passes += 1
    hvd.shutdown()
    return passes


def test_when_a_rank_ends_early_the_others_end_too():
    assert run_ranks(_one_ends_early, 2) == [5, 4]


def _estimator(folder: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    if not hasattr(tf, "estimator"):
        return

    def model(features, labels, mode):
        w = tf.compat.v1.get_variable("w", initializer=1.0)
        loss = tf.reduce_mean(features) * w
        sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        optimizer = hvd.DistributedOptimizer(
            sgd, backward_passes_per_step=2, average_aggregated_gradients=True
        )
        train = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    def numbers():
        return tf.data.Dataset.from_tensors([hvd.rank() + 1.0]).repeat().map(lambda x: (x, x))

    estimator = tf.estimator.Estimator(model, model_dir=f"{folder}/{hvd.rank()}")
    estimator.train(numbers, max_steps=5)
    assert estimator.get_variable_value("global_step") == 5
    mean = (hvd.size() + 1) / 2
    np.testing.assert_allclose(estimator.get_variable_value("w"), 1.0 - 2 * mean)


def test_an_estimator_counts_passes(tmp_path):
    run_ranks(_estimator, 2, str(tmp_path), timeout_s=120)


def _helper() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd
    from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper

    hvd.init()
    assert hvd.LocalGradientAggregationHelper is LocalGradientAggregationHelper
    calls = []

    def reduce(gradients, variables):
        calls.append([g.numpy().tolist() for g in gradients])
        return [10.0 * g for g in gradients]

    helper = LocalGradientAggregationHelper(3, reduce, average_aggregated_gradients=True)
    v, idle = tf.Variable([0.0, 0.0]), tf.Variable(0.0)
    seen = []
    for number in range(6):
        # The second variable has a gradient in some passes alone.
        second = tf.constant(1.0) if number == 1 else None
        first, second = helper.compute_gradients([tf.fill([2], float(number)), second], [v, idle])
        applied = helper.apply_gradients(lambda: "applied", [v, idle], lambda: "not")
        seen.append((first.numpy().tolist(), None if second is None else second.numpy(), applied))
    assert calls == [[[1.0, 1.0], pytest.approx(1 / 3)], [[4.0, 4.0], 0.0]]
    assert seen[0] == ([0.0, 0.0], None, "not")
    assert seen[1] == ([0.0, 0.0], 0.0, "not")
    assert seen[2] == ([10.0, 10.0], pytest.approx(10 / 3), "applied")
    assert seen[5] == ([40.0, 40.0], 0.0, "applied")
    for wrong in (0, 1.5, True):
        with pytest.raises(ValueError, match=f"backward_passes_per_step={wrong}; it must be"):
            LocalGradientAggregationHelper(wrong, reduce)

    # One variable, first with slices and then without.
    helper = LocalGradientAggregationHelper(2, reduce)
    rows = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([0]))
    table = tf.Variable(tf.zeros([3, 2]))
    helper.compute_gradients([rows], [table])
    with pytest.raises(ValueError, match=r"is dense.*sparse_as_dense=True"):
        helper.compute_gradients([tf.zeros([3, 2])], [table])

    with tf.Graph().as_default():
        vague = tf.compat.v1.Variable([0.0], shape=[None], validate_shape=False, name="vague")
        optimizer = hvd.DistributedOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2
        )
        with pytest.raises(ValueError, match=r"'vague:0'.*fully known"):
            optimizer.minimize(tf.reduce_sum(vague))


def _groups_with_an_idle_variable() -> None:
    """A variable without gradient may be in a group."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for passes in (1, 2):
        a, idle = tf.Variable(1.0), tf.Variable(5.0)
        sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)
        optimizer = hvd.DistributedOptimizer(
            sgd, backward_passes_per_step=passes, groups=[[a, idle]]
        )
        for _ in range(passes):
            optimizer.minimize(lambda a=a: a * (hvd.rank() + 1.0), var_list=[a, idle])
        assert [a.numpy(), idle.numpy()] == [1.0 - 1.5 * passes, 5.0]


def test_a_group_may_list_a_variable_without_gradient():
    run_ranks(_groups_with_an_idle_variable, 2)


def test_the_helper_by_itself():
    run_ranks(_helper, 1)
