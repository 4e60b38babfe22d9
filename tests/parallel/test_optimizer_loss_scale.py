"""DistributedOptimizer and compat.v1's loss scale optimizer, one in the other."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks

SCALE = 8.0


def _new(scale):
    import tensorflow as tf

    precision = tf.compat.v1.mixed_precision
    sgd = tf.compat.v1.train.GradientDescentOptimizer(1.0)

    def scaled(optimizer):
        return precision.MixedPrecisionLossScaleOptimizer(optimizer, scale)

    return sgd, scaled


def _dynamic():
    import tensorflow as tf

    return tf.compat.v1.mixed_precision.DynamicLossScale(SCALE, increment_period=2)


def _orders():
    """(name, what makes the optimizer, passes per step)."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    v1 = tf.compat.v1

    def ours_around(k):
        sgd, scaled = _new(_dynamic())
        return hvd.DistributedOptimizer(scaled(sgd), backward_passes_per_step=k)

    def ours_inside():
        sgd, scaled = _new(_dynamic())
        return scaled(hvd.DistributedOptimizer(sgd))

    def rewrite(of_ours):
        sgd, _ = _new(None)
        rewrite = v1.mixed_precision.enable_mixed_precision_graph_rewrite
        try:
            if of_ours:
                return rewrite(hvd.DistributedOptimizer(sgd), _dynamic())
            return hvd.DistributedOptimizer(rewrite(sgd, _dynamic()))
        finally:
            v1.mixed_precision.disable_mixed_precision_graph_rewrite()

    return (
        ("around", lambda: ours_around(1), 1),
        ("inside", ours_inside, 1),
        ("rewrite of ours", lambda: rewrite(True), 1),
        ("ours of rewrite", lambda: rewrite(False), 1),
        ("around, 2 passes", lambda: ours_around(2), 2),
    )


def _one_rank_has_inf(control_flow_v2: bool) -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    mean = (size + 1) / 2
    v1 = tf.compat.v1
    if not control_flow_v2:
        v1.disable_control_flow_v2()
    try:
        for name, make, k in _orders():
            with tf.Graph().as_default(), v1.Session() as session:
                with v1.variable_scope("", use_resource=True):
                    w = v1.get_variable("w", initializer=0.0)
                step = v1.train.get_or_create_global_step()
                x = v1.placeholder(tf.float32, [])
                optimizer = make()
                train = optimizer.minimize(w * x, global_step=step)
                (scale,) = [v for v in v1.global_variables() if "current_loss_scale" in v.name]
                session.run(v1.global_variables_initializer())

                inf = np.inf if rank == 1 else 1.0
                seen = []
                # inf is in the first pass of its step, so that with two it is in the sum.
                for first, rest in ((rank + 1.0, rank + 1.0), (inf, 1.0), (rank + 1.0, rank + 1.0)):
                    for value in [first, *[rest] * (k - 1)]:
                        session.run(train, {x: value})
                    seen.append(session.run([w, scale, step]))
            good, bad, after = seen
            # A skipped step is not counted, as without us; the passes before its last are.
            assert good == [-mean * k, SCALE, k], (name, good)
            assert bad == [-mean * k, SCALE / 2, 2 * k - 1], (name, bad)
            assert after == [-2 * mean * k, SCALE / 2, 3 * k - 1], (name, after)
    finally:
        if not control_flow_v2:
            v1.enable_control_flow_v2()


@pytest.mark.smoke
@pytest.mark.parametrize("control_flow_v2", [True, False])
def test_all_ranks_skip_the_step_in_which_one_has_inf(control_flow_v2):
    run_ranks(_one_rank_has_inf, 2, control_flow_v2, timeout_s=120)


def _eagerly() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for name, make, k in _orders():
        w = tf.Variable(0.0)
        optimizer = make()
        seen = []
        for value in (1.0, np.inf if hvd.rank() == 1 else 1.0, 1.0):
            for _ in range(k):
                optimizer.minimize(lambda w=w, value=value: w * value, var_list=[w])
            seen.append(w.numpy())
        assert seen == [-k, -k, -2 * k], (name, seen)


def test_in_eager_code():
    run_ranks(_eagerly, 2)


def _what_cannot_work() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    with tf.Graph().as_default():
        w = tf.Variable(0.0)

        sgd, scaled = _new(_dynamic())
        with pytest.raises(ValueError, match=r"backward_passes_per_step.*loss scale.*instead"):
            scaled(hvd.DistributedOptimizer(sgd, backward_passes_per_step=2)).minimize(w * 1.0)
        with pytest.raises(ValueError, match=r"op=Adasum.*loss scale"):
            hvd.DistributedOptimizer(scaled(sgd), op=hvd.Adasum)
        with pytest.raises(ValueError, match=r"op=Adasum.*loss scale"):
            scaled(hvd.DistributedOptimizer(sgd, op=hvd.Adasum)).minimize(w * 1.0)
        inside = hvd.DistributedOptimizer(sgd)
        inside.register_local_var(w)
        with pytest.raises(ValueError, match=r"register_local_var.*loss scale"):
            scaled(inside).minimize(w * 1.0)
        around = hvd.DistributedOptimizer(scaled(sgd))
        around.register_local_var(w)
        with pytest.raises(ValueError, match=r"register_local_var.*loss scale"):
            around.minimize(w * 1.0)
        with pytest.raises(ValueError, match="distributed already"):
            hvd.DistributedOptimizer(scaled(hvd.DistributedOptimizer(sgd)))

        # A fixed scale never skips a step, so all of it works.
        sgd, scaled = _new(4.0)
        for optimizer in (
            scaled(hvd.DistributedOptimizer(sgd, backward_passes_per_step=2)),
            hvd.DistributedOptimizer(scaled(sgd), op=hvd.Adasum),
        ):
            optimizer.minimize(w * 1.0)


def test_orders_that_cannot_work_are_refused():
    run_ranks(_what_cannot_work, 1)
