"""The gradients of the collectives: every rank's loss counts equally."""

from __future__ import annotations

import numpy as np
import pytest

from tests.harness.pool import run_ranks
from tests.parallel.modes import MODES, evaluate


def _weights(rank: int, shape: tuple[int, ...]) -> np.ndarray:
    """What this rank's loss multiplies each element by; small whole numbers."""
    return np.random.default_rng([7, rank]).integers(-4, 5, shape).astype(np.float32)


def _gradient(mode: str, mine: np.ndarray, weights: np.ndarray, function) -> np.ndarray:
    """The gradient of sum(weights * function(x)) for x = mine."""
    import tensorflow as tf

    def build():
        x = tf.constant(mine)
        if mode == "session":
            return tf.gradients(tf.reduce_sum(weights * function(x)), x)[0]
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(weights * function(x))
        return tape.gradient(loss, x)

    return evaluate(mode, build)


def _check_allreduce() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    ranks, rank = hvd.size(), hvd.rank()
    total = sum(_weights(r, (2, 3)) for r in range(ranks))
    mine = np.full((2, 3), rank + 1.0, np.float32)
    for mode in MODES:
        for name in (None, f"given_{mode}"):
            for options, expected in (
                ({"op": hvd.Sum}, total),
                ({"op": hvd.Average}, total / ranks),
                ({"op": hvd.Sum, "prescale_factor": 0.5, "postscale_factor": 4.0}, total * 2),
                ({"op": hvd.Average, "prescale_factor": 0.5}, total / ranks / 2),
            ):
                result = _gradient(
                    mode,
                    mine,
                    _weights(rank, (2, 3)),
                    lambda x, o=options, n=name: hvd.allreduce(x, name=n, **o),
                )
                np.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=f"{mode} {options}")


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradient_of_allreduce_is_the_same_allreduce(size):
    run_ranks(_check_allreduce, size, timeout_s=90)


def _check_allgather() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    ranks, rank = hvd.size(), hvd.rank()
    for rows in ([2] * ranks, list(range(ranks)), list(range(ranks, 0, -1))):
        shape = (sum(rows), 2)
        mean = sum(_weights(r, shape) for r in range(ranks)) / ranks
        begin = sum(rows[:rank])
        for mode in MODES:
            for name in (None, f"given_{mode}"):
                result = _gradient(
                    mode,
                    np.ones((rows[rank], 2), np.float32),
                    _weights(rank, shape),
                    lambda x, n=name: hvd.allgather(x, name=n),
                )
                np.testing.assert_allclose(
                    result, mean[begin : begin + rows[rank]], rtol=1e-6, err_msg=f"{mode} {rows}"
                )


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradient_of_allgather_is_the_average_of_own_rows(size):
    run_ranks(_check_allgather, size, timeout_s=90)


def _check_broadcast() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    ranks, rank = hvd.size(), hvd.rank()
    mean = sum(_weights(r, (3,)) for r in range(ranks)) / ranks
    for root in range(ranks):
        for mode in MODES:
            for name in (None, f"given_{mode}"):
                result = _gradient(
                    mode,
                    np.ones(3, np.float32),
                    _weights(rank, (3,)),
                    lambda x, n=name, root=root: hvd.broadcast(x, root, name=n),
                )
                expected = mean if rank == root else np.zeros(3)
                np.testing.assert_allclose(
                    result, expected, rtol=1e-6, err_msg=f"{mode} root {root}"
                )


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradient_of_broadcast_is_the_average_on_the_root(size):
    run_ranks(_check_broadcast, size, timeout_s=90)


def _check_slices_flow_back() -> None:
    """A gather after the collective makes the incoming gradient IndexedSlices."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    for function in (
        lambda x: hvd.allreduce(x, op=hvd.Sum),
        lambda x: hvd.broadcast(x, 0),
        lambda x: hvd.allgather(x),
    ):
        for mode in MODES:
            result = _gradient(
                mode,
                np.ones((3, 2), np.float32),
                np.ones((2, 2), np.float32),
                lambda x, f=function: tf.gather(f(x), [0, 0]),
            )
            assert result.shape == (3, 2)
            assert not result[1:].any()


def test_gradients_take_indexed_slices():
    run_ranks(_check_slices_flow_back, 2)
