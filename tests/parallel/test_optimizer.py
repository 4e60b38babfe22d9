"""DistributedOptimizer around `tf.compat.v1.train` optimizers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.harness.pool import run_ranks

OPTIMIZERS = ("GradientDescent", "Momentum", "Adam", "Adagrad", "RMSProp")
OTHERS = ("Adadelta", "AdagradDA", "Ftrl", "ProximalAdagrad", "ProximalGradientDescent")
EXAMPLES, FEATURES, WORDS, WIDTH = 12, 4, 7, 3  # EXAMPLES divides by 1, 2 and 3 ranks


def _new(kind: str):
    import tensorflow as tf

    train = tf.compat.v1.train
    more = {"Momentum": lambda: [0.9], "AdagradDA": lambda: [train.get_or_create_global_step()]}
    return getattr(train, f"{kind}Optimizer")(0.05, *more.get(kind, list)())


def _model(resource: bool):
    """A matrix, an embedding (whose gradient is IndexedSlices), and an idle variable."""
    import tensorflow as tf

    v1 = tf.compat.v1
    features = v1.placeholder(tf.float32, [None, FEATURES])
    words = v1.placeholder(tf.int32, [None])
    random = np.random.default_rng(3)
    with v1.variable_scope("model", use_resource=resource):
        matrix = v1.get_variable(
            "matrix", initializer=random.normal(size=(FEATURES, WIDTH)).astype(np.float32)
        )
        table = v1.get_variable(
            "table", initializer=random.normal(size=(WORDS, WIDTH)).astype(np.float32)
        )
        idle = v1.get_variable("idle", initializer=1.0)
    output = tf.matmul(features, matrix) + tf.gather(table, words)
    loss = tf.reduce_mean(tf.reduce_sum(output**2, axis=1))
    return features, words, [matrix, table, idle], loss


def _train(kind: str, resource: bool, distributed: bool, options: dict, mine: slice) -> list:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    random = np.random.default_rng(5)
    x = random.normal(size=(EXAMPLES, FEATURES)).astype(np.float32)
    w = random.integers(0, WORDS, EXAMPLES)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features, words, variables, loss = _model(resource)
        optimizer = _new(kind)
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, **options)
        step = tf.compat.v1.train.get_or_create_global_step()
        train = optimizer.minimize(loss, global_step=step)
        session.run(tf.compat.v1.global_variables_initializer())
        parts = np.split(np.arange(EXAMPLES)[mine], options.get("backward_passes_per_step", 1))
        for _ in range(8):
            for part in parts:
                session.run(train, {features: x[part], words: w[part]})
        return session.run(variables)


def _cases(few: bool) -> list[tuple]:
    """(optimizer, with resource variables, options, tolerance)."""
    import horovod.tensorflow as hvd

    passes = {"backward_passes_per_step": 2, "average_aggregated_gradients": True}
    if few:
        return [(kind, True, options, 1e-5) for kind in OPTIMIZERS for options in ({}, passes)]
    cases = [(kind, True, {}, 1e-5) for kind in OTHERS]
    for kind in OPTIMIZERS:
        for resource in (False, True):
            cases += [(kind, resource, {}, 1e-5), (kind, resource, passes, 1e-5)]
    for kind in OPTIMIZERS[:3]:
        # v1 Adam adds duplicate rows first, so sparse and dense updates differ only for rows
        # without a gradient; over the whole batch these are the same rows.
        cases += [
            (kind, True, {"sparse_as_dense": True, **passes}, 1e-5),
            (kind, True, {"sparse_as_dense": True, "gradient_predivide_factor": 2.0}, 1e-5),
            (kind, True, {"compression": hvd.Compression.fp16}, 1e-2),
        ]
    return cases


def _equals_the_whole_batch() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    per_rank = EXAMPLES // size
    mine = slice(rank * per_rank, (rank + 1) * per_rank)
    wholes: dict[str, list] = {}
    for kind, resource, options, tolerance in _cases(few=size != 2):
        if kind not in wholes:
            wholes[kind] = _train(kind, resource, False, {}, slice(None))
        parts = _train(kind, resource, True, options, mine)
        for part, whole in zip(parts, wholes[kind]):
            np.testing.assert_allclose(
                part,
                whole,
                rtol=tolerance,
                atol=tolerance,
                err_msg=f"{kind} resource={resource} {options}",
            )
        # The same bits on all ranks.
        flat = np.concatenate([part.ravel() for part in parts])
        gathered = hvd.allgather(flat[None]).numpy()
        np.testing.assert_array_equal(gathered, np.stack([flat] * size))


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2])
def test_training_equals_one_process_with_the_whole_batch(size):
    run_ranks(_equals_the_whole_batch, size, timeout_s=180)


def test_training_equals_one_process_with_the_whole_batch_on_three_ranks():
    run_ranks(_equals_the_whole_batch, 3, timeout_s=240)


def _passes_everything_through() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        _, _, (matrix, table, idle), _ = _model(True)
        adam = tf.compat.v1.train.AdamOptimizer(0.1)
        optimizer = hvd.DistributedOptimizer(adam, use_locking=True, name="Mine")
        assert isinstance(optimizer, tf.compat.v1.train.Optimizer)
        assert isinstance(optimizer, tf.compat.v1.train.AdamOptimizer)
        assert optimizer._use_locking is True
        assert optimizer.get_name() == adam.get_name() == "Adam"

        # Sum of squares with this rank's factor; idle has no gradient.
        loss = (rank + 1.0) * (tf.reduce_sum(matrix**2) + tf.reduce_sum(tf.gather(table, [0])))
        pairs = optimizer.compute_gradients(loss, var_list=[matrix, table, idle])
        assert [variable for _, variable in pairs] == [matrix, table, idle]
        assert isinstance(pairs[1][0], tf.IndexedSlices)
        assert pairs[2][0] is None
        marked = [
            op
            for op in tf.compat.v1.get_default_graph().get_operations()
            if op.type in ("HorovodAllreduce", "HorovodAllgather")
        ]
        assert len(marked) == 3
        assert all(op.get_attr("gradient") for op in marked)
        assert all(op.name.startswith("Mine_Allreduce/") for op in marked)

        train = optimizer.apply_gradients(pairs)
        assert optimizer.get_slot_names() == adam.get_slot_names() == ["m", "v"]
        assert optimizer.get_slot(matrix, "m") is adam.get_slot(matrix, "m")
        assert optimizer.get_slot(matrix, "m").op.name == "model/matrix/Adam"
        assert optimizer.variables() == adam.variables()
        session.run(tf.compat.v1.global_variables_initializer())
        before, gradient = session.run([matrix, pairs[0][0]])
        mean = sum(range(1, size + 1)) / size
        np.testing.assert_allclose(gradient, 2 * mean * before, rtol=1e-6)
        session.run(train)

        # Programs that make their own gradients.
        mine = tf.fill([2], rank + 1.0)
        one = optimizer._allreduce(mine)
        few = optimizer._allreduce_grads([mine, None], [matrix, idle])
        assert few[1] is None
        for reduced in (one, optimizer._allreduce([mine], [matrix])[0], few[0]):
            np.testing.assert_allclose(session.run(reduced), [mean] * 2)

        # Sum; and a variable whose gradient stays here.
        sums = hvd.DistributedOptimizer(_new("Momentum"), op=hvd.Sum)
        sums.register_local_var(table)
        reduced = [g for g, _ in sums.compute_gradients(loss, var_list=[matrix, table])]
        total, local = session.run([reduced[0] / (2 * matrix), reduced[1].values])
        np.testing.assert_allclose(total, np.full((FEATURES, WIDTH), mean * size), rtol=1e-5)
        np.testing.assert_allclose(local, np.full((1, WIDTH), (rank + 1) / size), rtol=1e-6)


@pytest.mark.smoke
def test_it_is_still_the_optimizer_it_was_made_of():
    run_ranks(_passes_everything_through, 2)


def _checkpoints_are_interchangeable(folder: str) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    prefix = f"{folder}/rank{hvd.rank()}"

    def session_of(distributed: bool, restore: str | None, save: str) -> list:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            features, words, _, loss = _model(True)
            optimizer = _new("Adam")
            if distributed:
                optimizer = hvd.DistributedOptimizer(optimizer)
            train = optimizer.minimize(loss)
            saver = tf.compat.v1.train.Saver()
            session.run(tf.compat.v1.global_variables_initializer())
            if restore:
                saver.restore(session, restore)
            before = session.run(tf.compat.v1.global_variables())
            feed = {features: np.ones((2, FEATURES)), words: [0, 1]}
            session.run(train, feed)
            saver.save(session, save, write_meta_graph=False)
            return [before, session.run(tf.compat.v1.global_variables())]

    _, plain = session_of(False, None, f"{prefix}-plain")
    restored, wrapped = session_of(True, f"{prefix}-plain", f"{prefix}-wrapped")
    again, _ = session_of(False, f"{prefix}-wrapped", f"{prefix}-again")
    for left, right in ((plain, restored), (wrapped, again)):
        assert len(left) == len(right)
        for a, b in zip(left, right):
            np.testing.assert_array_equal(a, b)


def test_checkpoints_with_and_without_it_are_interchangeable(tmp_path):
    run_ranks(_checkpoints_are_interchangeable, 2, str(tmp_path))


def _own_classes_and_many_fits() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()

    class Mine(tf.compat.v1.train.GradientDescentOptimizer):
        """As programs have them: it needs an argument, and calls its own methods."""

        def __init__(self, rate, *, weight_decay):
            super().__init__(rate, name="Mine")
            self.weight_decay = weight_decay

        def minimize(self, loss, **kwargs):
            pairs = self.compute_gradients(loss)
            return self.apply_gradients([(g + self.weight_decay * v, v) for g, v in pairs])

    classes = set()
    for _ in range(3):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            x = tf.compat.v1.get_variable("x", initializer=0.0)
            optimizer = hvd.DistributedOptimizer(Mine(1.0, weight_decay=0.5))
            classes.add(type(optimizer))
            train = optimizer.minimize((hvd.rank() + 1.0) * x)
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(train)
            assert session.run(x) == -1.5
    # The classes of different programs' optimizers are different, of one program the same.
    assert len(classes) == 1

    # Eager, as compat.v1 optimizers also run.
    x = tf.Variable(0.0)
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))
    optimizer.minimize(lambda: (hvd.rank() + 1.0) * x)
    assert x.numpy() == -1.5


def test_optimizers_of_programs_own_classes_and_many_fits():
    run_ranks(_own_classes_and_many_fits, 2)


_NAMED = {"train_it": "keyword", "train_here": "position", "GradientDescent": "default"}


def _named(options: dict) -> list[tuple]:
    """Returns, of each way to name the operation, what it is called and where training ends."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    if "op" in options:
        options["op"] = getattr(hvd, options["op"])
    found = []
    for (name, way), resource in itertools.product(_NAMED.items(), (False, True)):
        with tf.Graph().as_default() as graph, v1.Session() as session:
            w = v1.get_variable("w", initializer=1.0, use_resource=resource)
            step = v1.train.get_or_create_global_step()
            sgd = hvd.DistributedOptimizer(v1.train.GradientDescentOptimizer(0.25), **options)
            loss = w * (hvd.rank() + 1.0)
            if way == "position":
                train = sgd.apply_gradients(sgd.compute_gradients(loss), step, name)
            elif way == "keyword":
                train = sgd.minimize(loss, global_step=step, name=name)
            else:
                train = sgd.minimize(loss, global_step=step)
            assert graph.get_collection(v1.GraphKeys.TRAIN_OP) == [train]
            session.run(v1.global_variables_initializer())
            for _ in range(4):
                session.run(name)  # by its name alone
            found.append((train.name, *session.run([w, step])))
    return found


@pytest.mark.parametrize(
    "options",
    [{}, {"backward_passes_per_step": 2}, {"op": "Adasum"}],
    ids=["average", "passes", "Adasum"],
)
def test_the_operation_has_the_name_that_it_is_given(options):
    # Steps of 1 and 2 on one line are combined to their mean by Adasum too.
    expected = [(name, pytest.approx(-0.5), 4) for name in _NAMED for _ in range(2)]
    assert run_ranks(_named, 2, options) == [expected, expected]
