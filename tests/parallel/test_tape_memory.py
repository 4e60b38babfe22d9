"""A loop of eager steps with a tape needs no more memory the longer it runs."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.harness.pool import run_ranks

_WARM_UP_STEPS = 500
_STEPS = 2000
_MAX_GROWTH_BYTES = 4 << 20  # a kernel or a name kept for each step would be more


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _growth() -> int:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    weights = [tf.Variable(tf.ones([64, 64])), tf.Variable(tf.ones([64]))]
    table = tf.Variable(tf.ones([8, 64]))
    hvd.broadcast_variables([*weights, table], root_rank=0)
    row = tf.constant([hvd.rank()])

    def step() -> None:
        with tf.GradientTape() as tape:
            hidden = tf.gather(table, row) @ weights[0] + weights[1]
            loss = tf.reduce_mean(hidden * hidden)
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, [*weights, table])
        for variable, gradient in zip(weights, gradients):
            variable.assign_sub(1e-3 * gradient)
        table.scatter_sub(tf.IndexedSlices(1e-3 * gradients[2].values, gradients[2].indices))

    for _ in range(_WARM_UP_STEPS):
        step()
    before = _resident_bytes()
    for _ in range(_STEPS):
        step()
    return _resident_bytes() - before


@pytest.mark.smoke
def test_eager_steps_do_not_grow():
    for growth in run_ranks(_growth, 2, timeout_s=180):
        assert growth < _MAX_GROWTH_BYTES, f"{growth / _STEPS:.0f} bytes per step"
