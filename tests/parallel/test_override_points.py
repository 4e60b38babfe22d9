"""Canaries for what is overridden in tf.compat.v1 optimizers; see docs/override-points.md."""

from __future__ import annotations

import pytest

from tests.harness.pool import run_ranks


def _calls_of_minimize() -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    calls: list[str] = []

    class Recording(v1.train.GradientDescentOptimizer):
        def compute_gradients(self, *args, **kwargs):
            calls.append("compute_gradients")
            return super().compute_gradients(*args, **kwargs)

        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            calls.append("apply_gradients")
            return super().apply_gradients(grads_and_vars, global_step, name)

    scaler = v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    with tf.Graph().as_default():
        weight = v1.get_variable("w", initializer=1.0)
        for optimizer in (Recording(0.1), scaler(Recording(0.1), 8.0)):
            del calls[:]
            optimizer.minimize(2 * weight)
            assert calls == ["compute_gradients", "apply_gradients"]


@pytest.mark.smoke
def test_v1_optimizers_call_what_is_overridden():
    run_ranks(_calls_of_minimize, 1)


def _private_attributes() -> None:
    import tensorflow as tf

    from horovod.tensorflow import _compat

    v1 = tf.compat.v1
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    with tf.Graph().as_default() as graph:
        for locks in (False, True):
            if locks:
                _compat.use_locking(optimizer)
            weight = v1.get_variable(f"w{locks}", initializer=1.0, use_resource=False)
            optimizer.minimize(2 * weight)
        updates = [op for op in graph.get_operations() if op.type == "ApplyGradientDescent"]
        assert [op.get_attr("use_locking") for op in updates] == [False, True]
        scaler = v1.mixed_precision.MixedPrecisionLossScaleOptimizer
        assert _compat.scaled_optimizer(scaler(optimizer, 8.0)) is optimizer
        assert not _compat.scales_loss_dynamically(scaler(optimizer, 8.0))
        assert _compat.scales_loss_dynamically(scaler(optimizer, "dynamic"))


@pytest.mark.smoke
def test_v1_optimizers_keep_their_locks_and_loss_scale_where_we_look():
    run_ranks(_private_attributes, 1)
