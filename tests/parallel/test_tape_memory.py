"""A loop of eager steps with a distributed tape needs no memory of its own.

TensorFlow keeps some hundred bytes of each eager step with a tape.  So the measure is the same loop
with an identity of TensorFlow's in place of each collective.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from tests.harness.pool import run_ranks

_WARM_UP_STEPS = 200
_STEPS = 2000
_MAX_BYTES_PER_STEP = 2000  # a kernel kept for each step would be several thousand


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _bytes_per_step() -> tuple[float, float]:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    weights = [tf.Variable(tf.ones([8, 8])), tf.Variable(tf.ones([8]))]
    hvd.broadcast_variables(weights, root_rank=0)
    inputs, rate = tf.ones([4, 8]), tf.constant(1e-3)

    def identities(tape, loss):
        return [tf.identity(gradient) for gradient in tape.gradient(loss, weights)]

    def collectives(tape, loss):
        return hvd.DistributedGradientTape(tape).gradient(loss, weights)

    def growth(gradients_of) -> float:
        def step() -> None:
            with tf.GradientTape() as tape:
                hidden = inputs @ weights[0] + weights[1]
                loss = tf.reduce_mean(hidden * hidden)
            for variable, gradient in zip(weights, gradients_of(tape, loss)):
                variable.assign_sub(rate * gradient)

        for _ in range(_WARM_UP_STEPS):
            step()
        before = _resident_bytes()
        for _ in range(_STEPS):
            step()
        return (_resident_bytes() - before) / _STEPS

    return growth(identities), growth(collectives)


def test_eager_steps_do_not_grow():
    for plain, distributed in run_ranks(_bytes_per_step, 2, timeout_s=300):
        assert distributed - plain < _MAX_BYTES_PER_STEP, (plain, distributed)
