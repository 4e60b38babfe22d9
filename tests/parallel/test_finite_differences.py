"""The gradients of the collectives against finite differences over all ranks.

A rank's loss is a sum of squares of what its collective gave.  One element of one rank at a time is
moved a little, and the change of all ranks' losses together is what that element's gradient is a
multiple of; the multiple is fixed for each collective, and the same for all of its elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from horovod.common.reduce_ops import Sum
from tests.harness.pool import run_ranks

_STEP = 1e-3  # the loss is quadratic, so central differences of any step are exact


class _Case(NamedTuple):
    """One collective.

    Attributes:
      rows: how many rows a rank has, of its number, the number of ranks, and a factor.
      run: makes a list of tensors of a tensor of shape [rows, 2].
      multiple: of the gradient of the sum of all losses, by the number of ranks.
    """

    rows: Callable[[int, int, int], int]
    run: Callable[[Any], list[Any]]
    multiple: Callable[[int], float]


def _hvd() -> Any:
    import horovod.tensorflow as hvd

    return hvd


def _alike(rank: int, size: int, factor: int) -> int:
    return factor * size + 1


def _even(rank: int, size: int, factor: int) -> int:
    return factor * size


def _by_rank(rank: int, size: int, factor: int) -> int:
    return factor * rank + 1 if rank else 0


def _splits(rank: int, size: int) -> list[int]:
    return [(rank + to) % 3 for to in range(size)]


def _split(rank: int, size: int, factor: int) -> int:
    return factor * sum(_splits(rank, size))


def _alltoall_with_splits(x: Any) -> list[Any]:
    import tensorflow as tf

    hvd = _hvd()
    splits = _splits(hvd.rank(), hvd.size())
    return [hvd.alltoall(x, splits=splits * (tf.shape(x)[0] // sum(splits)))[0]]


def _pair(x: Any) -> list[Any]:
    return [x, 3.0 * x[:, :1]]


def _once(size: int) -> float:
    return 1.0


def _average(size: int) -> float:
    return 1.0 / size


def _times_size(size: int) -> float:
    return float(size)


FACTORS = {"prescale_factor": 0.5, "postscale_factor": 3.0}
CASES = {
    "allreduce, Sum": _Case(_alike, lambda x: [_hvd().allreduce(x, op=Sum)], _once),
    "allreduce, Average": _Case(_alike, lambda x: [_hvd().allreduce(x)], _once),
    "allreduce, Sum, factors": _Case(
        _alike, lambda x: [_hvd().allreduce(x, op=Sum, **FACTORS)], _once
    ),
    "allreduce, Average, factors": _Case(_alike, lambda x: [_hvd().allreduce(x, **FACTORS)], _once),
    "grouped_allreduce": _Case(
        _alike, lambda x: _hvd().grouped_allreduce(_pair(x), op=Sum, **FACTORS), _once
    ),
    "allgather": _Case(_by_rank, lambda x: [_hvd().allgather(x)], _average),
    "grouped_allgather": _Case(_by_rank, lambda x: _hvd().grouped_allgather(_pair(x)), _average),
    "broadcast": _Case(_alike, lambda x: [_hvd().broadcast(x, _hvd().size() - 1)], _average),
    "alltoall": _Case(_even, lambda x: [_hvd().alltoall(x)], _once),
    "alltoall, splits": _Case(_split, _alltoall_with_splits, _once),
    "reducescatter, Sum, factors": _Case(
        _alike, lambda x: [_hvd().reducescatter(x, op=Sum, **FACTORS)], _times_size
    ),
    "reducescatter, Average": _Case(_alike, lambda x: [_hvd().reducescatter(x)], _times_size),
    "grouped_reducescatter": _Case(
        _alike, lambda x: _hvd().grouped_reducescatter(_pair(x), **FACTORS), _times_size
    ),
}


def _loss(case: _Case, x: Any) -> Any:
    """This rank's: every element of every result, squared, with a weight of its own."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    losses = []
    for y in case.run(x):
        weights = tf.reshape(tf.range(tf.size(y, tf.int64)), tf.shape(y)) % 5 + hvd.rank() + 1
        losses.append(tf.reduce_sum(tf.cast(weights, y.dtype) * y * y))
    return tf.add_n(losses)


def _with_tape(case: _Case, x: Any) -> Any:
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = _loss(case, x)
    return tape.gradient(loss, x)


def _gradients(case: _Case) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Yields each way to compute the gradient: its name, and a function of this rank's array."""
    import tensorflow as tf

    def build(x: Any) -> Any:
        return _with_tape(case, x)

    unknown_rows = tf.TensorSpec([None, 2], tf.float64)
    traced_for_each_shape = tf.function(build, autograph=False)
    traced_once = tf.function(build, input_signature=[unknown_rows], autograph=False)
    yield "eager", lambda x: build(tf.constant(x)).numpy()
    yield "function for each shape", lambda x: traced_for_each_shape(tf.constant(x)).numpy()
    yield "function of unknown rows", lambda x: traced_once(tf.constant(x)).numpy()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.compat.v1.placeholder(tf.float64, [None, 2])
        [gradient] = tf.gradients(_loss(case, x), x)
        yield "session of unknown rows", lambda array: session.run(gradient, {x: array})


def _by_differences(case: _Case, mine: np.ndarray, factor: int) -> np.ndarray:
    """The gradient of the sum of all ranks' losses with respect to `mine`."""
    import tensorflow as tf

    import horovod.tensorflow as hvd

    signature = [tf.TensorSpec([None, 2], tf.float64)]
    loss_of = tf.function(
        lambda x: hvd.allreduce(_loss(case, x), op=hvd.Sum, name="losses"),
        input_signature=signature,
        autograph=False,
    )
    result = np.zeros_like(mine)
    for rank in range(hvd.size()):
        for place in range(2 * case.rows(rank, hvd.size(), factor)):
            losses = []
            for step in (_STEP, -_STEP):
                moved = mine.copy()
                if rank == hvd.rank():
                    moved.flat[place] += step
                losses.append(loss_of(tf.constant(moved)).numpy())
            if rank == hvd.rank():
                result.flat[place] = (losses[0] - losses[1]) / (2 * _STEP)
    return result


def _check(name: str) -> None:
    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    case = CASES[name]
    arrays, wanted = [], []
    for factor in (1, 2):
        random = np.random.default_rng([rank, factor])
        arrays.append(random.standard_normal((case.rows(rank, size, factor), 2)))
        wanted.append(case.multiple(size) * _by_differences(case, arrays[-1], factor))
    for way, gradient in _gradients(case):
        for mine, want in zip(arrays, wanted):
            got = gradient(mine)
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=f"{name}, {way}")


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", CASES)
def test_gradient_is_the_fixed_multiple_of_the_losses_change(name, size):
    run_ranks(_check, size, name, timeout_s=90)
