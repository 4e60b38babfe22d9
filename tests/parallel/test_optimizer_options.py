"""DistributedOptimizer and the tape: groups, refusals, warnings."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

from tests.harness.pool import run_ranks


def _groups() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    mean = (hvd.size() + 1) / 2

    def groups_of(options):
        """The numbers of tensors of the grouped ops, and the number of single ones."""
        with tf.Graph().as_default() as graph, v1.Session() as session:
            variables = [tf.Variable(tf.ones([n + 1]), name=f"v{n}") for n in range(5)]
            half = tf.Variable(tf.ones([2], tf.float16), name="half")
            idle = tf.Variable(1.0, name="idle")
            loss = sum(tf.reduce_sum(v) for v in variables) + tf.cast(
                tf.reduce_sum(half), tf.float32
            )
            made = options(variables, half)
            sgd = v1.train.GradientDescentOptimizer(1.0)
            optimizer = hvd.DistributedOptimizer(sgd, **made)
            pairs = optimizer.compute_gradients(loss * (hvd.rank() + 1.0), [*variables, half, idle])
            session.run(v1.global_variables_initializer())
            values = session.run([gradient for gradient, _ in pairs[:-1]])
            for value, variable in zip(values, [*variables, half]):
                np.testing.assert_allclose(value, np.full(variable.shape, mean), rtol=1e-3)
            assert pairs[-1][0] is None
            ops = graph.get_operations()
            grouped = [o for o in ops if o.type == "HorovodGroupedAllreduce"]
            assert all(op.get_attr("gradient") for op in grouped)
            single = [o for o in ops if o.type == "HorovodAllreduce"]
            return sorted(op.get_attr("num_tensors") for op in grouped), len(single)

    assert groups_of(lambda v, half: {}) == ([], 6)
    assert groups_of(lambda v, half: {"groups": 0}) == ([], 6)
    # Six gradients in two groups; the second has two dtypes, which are a group each.
    assert groups_of(lambda v, half: {"groups": 2}) == ([1, 2, 3], 0)
    assert groups_of(lambda v, half: {"groups": 50}) == ([1] * 6, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert groups_of(lambda v, half: {"num_groups": 3}) == ([1, 1, 2, 2], 0)
        assert groups_of(lambda v, half: {"num_groups": 3}) == ([1, 1, 2, 2], 0)
    assert ["num_groups=3 is deprecated" in str(w.message) for w in caught].count(True) == 1
    assert groups_of(lambda v, half: {"groups": [[v[3], v[0]], [], [v[1]]]}) == ([1, 2], 3)
    fp16 = {"compression": hvd.Compression.fp16}
    assert groups_of(lambda v, half: {"groups": 2, **fp16}) == ([1, 2, 3], 0)

    # Eagerly, with a tape, rows among dense gradients, and over passes.
    a, b, table = tf.Variable(1.0), tf.Variable([1.0, 2.0]), tf.Variable(tf.ones([3, 2]))
    for groups in (1, 2, [[a, table]]):
        with tf.GradientTape() as tape:
            loss = a * tf.reduce_sum(b) * (hvd.rank() + 1.0) + tf.reduce_sum(tf.gather(table, [1]))
        got = hvd.DistributedGradientTape(tape, groups=groups).gradient(loss, [a, b, table])
        np.testing.assert_allclose(got[0], 3 * mean)
        np.testing.assert_allclose(got[1], [mean] * 2)
        np.testing.assert_allclose(tf.convert_to_tensor(got[2]), [[0, 0], [1, 1], [0, 0]])
    c = tf.Variable(1.0)
    optimizer = hvd.DistributedOptimizer(
        v1.train.GradientDescentOptimizer(1.0), groups=[[a, c]], backward_passes_per_step=2
    )
    for _ in range(2):
        optimizer.minimize(lambda: (a + c) * (hvd.rank() + 1.0), var_list=[a, c])
    assert [a.numpy(), c.numpy()] == [1 - 2 * mean] * 2


@pytest.mark.smoke
def test_groups_travel_together():
    run_ranks(_groups, 2, timeout_s=120)


def _refusals() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v1 = tf.compat.v1
    sgd = v1.train.GradientDescentOptimizer

    class OfTorch:
        """As an optimizer of PyTorch looks."""

    OfTorch.__module__ = "torch.optim.sgd"
    stranger, mine = tf.Variable(1.0, name="stranger"), tf.Variable(1.0, name="mine")
    advice = "pass hvd.Compression.fp16 or a class with compress and decompress"
    wrong: list[tuple[dict, str]] = [
        ({"compression": "fp16"}, f"compression='fp16'; {advice}"),
        ({"compression": None}, f"compression=None; {advice}"),
        ({"compression": hvd.Compression}, advice),
        ({"process_set": 3}, "process_set=3; pass the hvd.ProcessSet"),
        ({"process_set": None}, "process_set=None; pass the hvd.ProcessSet"),
        ({"process_set": 3, "op": hvd.Adasum}, "process_set=3; pass the hvd.ProcessSet"),
        ({"sparse_as_dense": "x"}, "sparse_as_dense='x'; it must be True or False"),
        ({"scale_local_gradients": "x"}, "scale_local_gradients='x'; it must be True or False"),
        *(
            ({"gradient_predivide_factor": factor}, f"_factor={factor!r}; it must be a number")
            for factor in ("2", None, float("nan"))
        ),
    ]
    makers = [sgd, tf.keras.optimizers.SGD]
    for wrap in (hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape):
        for options, text in wrong:
            with pytest.raises(ValueError, match=re.escape(text)):
                wrap(tf.GradientTape(), **options)
    wrong += [
        ({name: "x"}, f"{name}='x'; it must be True or False")
        for name in ("average_aggregated_gradients", "step_counts_updates")
    ]
    for stays in (
        hvd.DistributedOptimizer(sgd(1.0)).register_local_var,
        hvd.DistributedOptimizer(tf.keras.optimizers.SGD(1.0)).register_local_var,
        hvd.DistributedGradientTape(tf.GradientTape()).register_local_source,
    ):
        stays(mine)
        for no_variable in (None, "w", [mine], 1.0):
            text = f"{no_variable!r}, whose gradient is to stay on its rank, is no variable"
            with pytest.raises(ValueError, match=re.escape(text)):
                stays(no_variable)
    for optimizer, options, text in (
        (None, {}, "None is not an optimizer of TensorFlow: pass"),
        (3, {}, "3 is not an optimizer"),
        (OfTorch(), {}, "it is PyTorch's"),
        (sgd, {}, "it is a class; pass an instance, such as GradientDescentOptimizer"),
        (sgd(1.0), {"backward_passes_per_step": 0}, "backward_passes_per_step=0"),
        (sgd(1.0), {"backward_passes_per_step": -1}, "backward_passes_per_step=-1"),
        (sgd(1.0), {"backward_passes_per_step": 1.5}, "backward_passes_per_step=1.5"),
        (sgd(1.0), {"op": hvd.Max}, "op is Max"),
        (sgd(1.0), {"gradient_predivide_factor": 0.0}, "gradient_predivide_factor=0.0"),
        (sgd(1.0), {"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "op is Sum"),
        (sgd(1.0), {"gradient_predivide_factor": 2.0, "op": hvd.Adasum}, "op is Adasum"),
        (
            sgd(1.0),
            {"average_aggregated_gradients": True, "op": hvd.Adasum},
            "average_aggregated_gradients=True with op=Adasum",
        ),
        (sgd(1.0), {"groups": -1}, "groups=-1"),
        (sgd(1.0), {"groups": "two"}, "groups='two'"),
        (sgd(1.0), {"groups": [mine]}, "list of lists of variables"),
        (sgd(1.0), {"groups": [[1, 2]]}, "list of lists of variables"),
        (sgd(1.0), {"groups": [[mine], [mine]]}, "'mine:0' is in groups 2 times"),
        (sgd(1.0), {"groups": 2, "num_groups": 3}, "num_groups=3 and groups=2"),
        (tf.keras.optimizers.SGD, {}, "it is a class; pass an instance, such as SGD"),
        (tf.keras.layers.Dense(1), {}, "is not an optimizer"),
        (
            tf.keras.optimizers.SGD(1.0),
            {"op": hvd.Adasum},
            "DistributedSGD: op=Adasum combines what each rank's update changed, which is built "
            "for tf.compat.v1.train optimizers alone",
        ),
        *(
            (make(1.0), options, text)
            for make in makers
            for options, text in wrong
            if make is sgd or "op" not in options
        ),
        (hvd.DistributedOptimizer(sgd(1.0)), {}, "distributed already"),
        (hvd.DistributedOptimizer(sgd(1.0)), {"backward_passes_per_step": 2}, "already"),
        (hvd.DistributedOptimizer(sgd(1.0), op=hvd.Adasum), {}, "distributed already"),
    ):
        with pytest.raises(ValueError, match=re.escape(text)):
            hvd.DistributedOptimizer(optimizer, **options)

    foreign = hvd.DistributedOptimizer(sgd(1.0), groups=[[mine], [stranger]])
    with pytest.raises(ValueError, match=r"'stranger:0' of groups\[1\] is none of the 1"):
        foreign.minimize(lambda: mine * 1.0, var_list=[mine])

    for wrap in (hvd.DistributedGradientTape, hvd.PartialDistributedGradientTape):
        with pytest.raises(ValueError, match=r"not a tf\.GradientTape"):
            wrap(None)
        with pytest.raises(ValueError, match="distributed already"):
            wrap(hvd.DistributedGradientTape(tf.GradientTape()))
    with pytest.raises(ValueError, match="local_layers has 3, which is no layer"):
        hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[3])

    with tf.Graph().as_default():
        optimizer = hvd.DistributedOptimizer(sgd(1.0), backward_passes_per_step=2)
        with pytest.raises(ValueError, match="No variables to optimize"):
            optimizer.minimize(tf.constant(1.0))
        idle = tf.Variable(1.0)
        with pytest.raises(ValueError, match="No gradients"):
            optimizer.minimize(tf.constant(1.0) * 2.0, var_list=[idle])

    with pytest.raises(AttributeError, match="has no model; keep the model in a variable"):
        hvd.DistributedOptimizer(sgd(1.0)).model  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hvd.DistributedOptimizer(sgd(1.0)).nothing  # noqa: B018


def test_what_is_wrong_is_said_at_the_call():
    run_ranks(_refusals, 1)


def _some_ranks() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    pair = hvd.ProcessSet([0, 2])
    hvd.init(process_sets=[pair])
    sgd = tf.compat.v1.train.GradientDescentOptimizer
    for options in ({}, {"backward_passes_per_step": 2, "average_aggregated_gradients": True}):
        w, own = tf.Variable(0.0), tf.Variable(0.0)
        optimizer = hvd.DistributedOptimizer(sgd(1.0), process_set=pair, groups=1, **options)
        optimizer.register_local_var(own)
        for _ in range(2 if options else 1):
            if hvd.rank() != 1:
                optimizer.minimize(
                    lambda w=w, own=own: (hvd.rank() + 1.0) * (w + own), None, [w, own]
                )
        assert w.numpy() == (0 if hvd.rank() == 1 else -2)
        assert own.numpy() == {0: -0.5, 1: 0, 2: -1.5}[hvd.rank()]

    if hvd.rank() != 1:  # two ranks of three
        x = tf.Variable(0.0)
        hvd.DistributedOptimizer(sgd(1.0), op=hvd.Adasum, process_set=pair).minimize(
            lambda: x * (hvd.rank() + 1.0), None, [x]
        )
        assert x.numpy() == -2.0  # parallel steps of 1 and 3
    for wrap, what in (
        (hvd.DistributedOptimizer, sgd(1.0)),
        (hvd.DistributedGradientTape, tf.GradientTape()),
    ):
        with pytest.raises(ValueError, match=r"op=Adasum is for 1, 2, 4, 8 \.\.\. ranks.*are 3"):
            wrap(what, op=hvd.Adasum)


def test_the_ranks_of_a_process_set_alone():
    run_ranks(_some_ranks, 3)


def _reduced_twice() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    v = tf.Variable([1.0, 2.0])
    empty = tf.Variable(tf.zeros([0, 3]))
    optimizer = hvd.DistributedOptimizer(tf.compat.v1.train.GradientDescentOptimizer(1.0))

    def step():
        with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
            loss = tf.reduce_sum(v * v) * (hvd.rank() + 1.0) + tf.reduce_sum(empty)
        gradients = tape.gradient(loss, [v, empty])
        assert gradients[1].shape == [0, 3]
        return optimizer._allreduce_grads(gradients, [v, empty])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for run in (step, tf.function(step)):
            np.testing.assert_allclose(run()[0], v.numpy() * (hvd.size() + 1), rtol=1e-6)
    found = [w for w in caught if "has reduced already" in str(w.message)]
    assert len(found) == 1 and "DistributedGradientTape" in str(found[0].message), found
    assert found[0].filename == __file__


def test_gradients_that_are_reduced_twice_are_warned_about_once():
    run_ranks(_reduced_twice, 2)


def _canaries() -> None:
    """What optimizer_v1.py relies on, in this TensorFlow."""
    import inspect

    import tensorflow as tf

    from horovod.tensorflow import _compat

    v1 = tf.compat.v1
    kinds = [
        kind
        for name, kind in vars(v1.train).items()
        if name.endswith("Optimizer") and isinstance(kind, type)
    ]
    assert len(kinds) >= 10
    for kind in kinds:  # none goes past Optimizer.compute_gradients
        assert "minimize" not in vars(kind) or kind is v1.train.Optimizer
        names = list(inspect.signature(kind.apply_gradients).parameters)
        assert names[:3] == ["self", "grads_and_vars", "global_step"]
    scaler = v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    assert "self._optimizer.compute_gradients(" in inspect.getsource(scaler.compute_gradients)
    assert "minimize" not in vars(scaler)

    sgd = v1.train.GradientDescentOptimizer(1.0)
    assert _compat.scales_loss_dynamically(scaler(sgd, "dynamic"))
    assert not _compat.scales_loss_dynamically(scaler(sgd, 2.0))
    assert not _compat.scales_loss_dynamically(sgd)
    assert _compat.scaled_optimizer(scaler(sgd, 2.0)) is sgd
    assert _compat.scaled_optimizer(sgd) is None

    # A branch can change a ref variable, also where control flow v2 is on, which stays on.
    was = v1.control_flow_v2_enabled()
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(1.0, use_resource=False)
        due = v1.placeholder(tf.bool, [])
        (done,) = _compat.cond(
            due, lambda: [w.assign_add(1.0) + 0.0], lambda: [tf.constant(0.0)], "either"
        )
        session.run(w.initializer)
        assert [session.run(done, {due: value}) for value in (False, True)] == [0.0, 2.0]
    assert v1.control_flow_v2_enabled() == was


@pytest.mark.smoke
def test_canaries():
    run_ranks(_canaries, 1)
