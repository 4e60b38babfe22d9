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


def _check_exchange() -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    ranks, rank = hvd.size(), hvd.rank()
    splits = [[(r + t) % 3 for t in range(ranks)] for r in range(ranks)]
    rows = [sum(s) for s in splits]
    received = [sum(splits[r][t] for r in range(ranks)) for t in range(ranks)]
    for mode in MODES:
        for name in (None, f"given_{mode}"):
            result = _gradient(
                mode,
                np.ones((rows[rank], 2), np.float32),
                _weights(rank, (received[rank], 2)),
                lambda x, n=name: hvd.alltoall(x, splits=splits[rank], name=n)[0],
            )
            # The rows that went to rank t come back from where they lay there.
            back = []
            for t in range(ranks):
                begin = sum(splits[r][t] for r in range(rank))
                back.append(_weights(t, (received[t], 2))[begin : begin + splits[rank][t]])
            np.testing.assert_array_equal(result, np.concatenate(back), err_msg=mode)

            kept = [7 // ranks + (r < 7 % ranks) for r in range(ranks)]
            everyone = np.concatenate([_weights(r, (kept[r],)) for r in range(ranks)])
            for options, factor in (
                ({}, 1.0),
                ({"op": hvd.Sum}, ranks),
                ({"op": hvd.Average, "prescale_factor": 0.5, "postscale_factor": 3.0}, 1.5),
            ):
                result = _gradient(
                    mode,
                    np.ones(7, np.float32),
                    _weights(rank, (kept[rank],)),
                    lambda x, o=options, n=name: hvd.reducescatter(x, name=n, **o),
                )
                np.testing.assert_allclose(result, everyone * factor, err_msg=f"{mode} {options}")


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 2, 3])
def test_gradients_of_alltoall_and_reducescatter(size):
    run_ranks(_check_exchange, size, timeout_s=90)


def _check_groups() -> None:
    import tensorflow as tf

    import horovod.tensorflow as hvd

    hvd.init()
    ranks, rank = hvd.size(), hvd.rank()

    def joined(tensors):
        return tf.concat([tf.reshape(t, [-1]) for t in tensors], 0)

    def both(x):
        return [x, 2.0 * x]

    total = sum(_weights(r, (12,)) for r in range(ranks))
    for mode in MODES:
        result = _gradient(
            mode,
            np.ones((2, 3), np.float32),
            _weights(rank, (12,)),
            lambda x: joined(hvd.grouped_allreduce(both(x), op=hvd.Sum)),
        )
        np.testing.assert_allclose(result, np.reshape(total[:6] + 2 * total[6:], [2, 3]))

        rows = list(range(1, ranks + 1))
        size = 2 * sum(rows)
        mean = sum(_weights(r, (size,)) for r in range(ranks)) / ranks
        mine = slice(sum(rows[:rank]), sum(rows[: rank + 1]))
        result = _gradient(
            mode,
            np.ones(rows[rank], np.float32),
            _weights(rank, (size,)),
            lambda x: joined(hvd.grouped_allgather(both(x))),
        )
        expected = mean[: size // 2][mine] + 2 * mean[size // 2 :][mine]
        np.testing.assert_allclose(result, expected, rtol=1e-6)

        result = _gradient(
            mode,
            np.ones(2 * ranks, np.float32),
            _weights(rank, (4,)),
            lambda x: joined(hvd.grouped_reducescatter(both(x))),
        )
        expected = np.concatenate(
            [_weights(r, (4,))[:2] + 2 * _weights(r, (4,))[2:] for r in range(ranks)]
        )
        np.testing.assert_allclose(result, expected)


@pytest.mark.smoke
@pytest.mark.parametrize("size", [1, 3])
def test_gradients_of_groups(size):
    run_ranks(_check_groups, size, timeout_s=90)
