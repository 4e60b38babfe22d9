"""A training step with a gradient tape, for `horovod.tensorflow`: ours or the peer's."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from tests.bench.cases import Case
from tests.bench.errors import WrongResult
from tests.bench.rank_backend import PARTS
from tests.bench.rank_models import MODELS, batch

__all__ = ["StepWork"]

_BATCH = 32
_TOLERANCE = 1e-3  # of the largest element: float32, summed in another order
_TINY = 1e-6  # of gradients that are zero but for rounding


def _seed(rank: int) -> int:
    """Of a rank's data."""
    return 2 + rank


class StepWork:
    """Each part trains a model of its own: alone, a rank learns other weights than with the others.

    Args:
      hvd: the package.
      case: a "step".
    """

    def __init__(self, hvd: Any, case: Case) -> None:
        self._hvd = hvd
        self._trainings = {part: _Training(hvd, case, part == "gross") for part in PARTS}

    def runner(self, part: str) -> Callable[[], object]:
        run: Callable[[], object] = self._trainings[part].step
        return run

    def check(self, part: str) -> None:
        training = self._trainings[part]
        if part == "gross":  # first, since all ranks must come to it
            self._check_equal(training.digest())
            training.check_gradients(self._hvd.size())
        training.check_learning()

    def close(self) -> None:
        self._trainings = {}

    def _check_equal(self, mine: Any) -> None:
        digests = self._hvd.allgather(tf.constant([mine]), name="digests").numpy()
        for rank, digest in enumerate(digests):
            if (digest != mine).any():
                raise WrongResult(
                    f"the weights of rank {rank} are not those of rank {self._hvd.rank()}: digests "
                    f"{digest} and {mine}"
                )


class _Training:
    def __init__(self, hvd: Any, case: Case, with_others: bool) -> None:
        model = MODELS[case.collective]
        network = model.kind()
        mine = batch(model.side, _BATCH, seed=_seed(hvd.rank()))
        self._weights = network.trainable_variables

        def loss(images: Any, labels: Any) -> Any:
            logits = network(images)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            return tf.reduce_mean(losses)

        def gradients(images: Any, labels: Any, distributed: bool) -> tuple[Any, Any]:
            with tf.GradientTape() as tape:
                now = loss(images, labels)
            if distributed:
                tape = hvd.DistributedGradientTape(tape)
            return now, tape.gradient(now, self._weights)

        def step() -> Any:
            now, found = gradients(*mine, with_others)
            for weight, gradient in zip(self._weights, found):
                weight.assign_sub(model.learning_rate * gradient)
            return now

        self._side = model.side
        self._gradients = gradients
        self._mine = mine
        self._loss = tf.function(lambda: loss(*mine))
        self._step = tf.function(step)
        self._first_loss = float(self._loss())
        self._steps = 0

    def step(self) -> object:
        """One step; it has been done when this returns."""
        self._steps += 1
        return self._step()

    def check_gradients(self, size: int) -> None:
        """Raises WrongResult unless the gradients are the mean of those of all ranks.

        Every rank can compute the others', since their data come from seeds and the weights are
        equal.
        """
        _, got = self._gradients(*self._mine, True)
        of_ranks = []
        for rank in range(size):
            data = batch(self._side, _BATCH, seed=_seed(rank))
            of_ranks.append([np.asarray(g, np.float64) for g in self._gradients(*data, False)[1]])
        for place, gradient in enumerate(got):
            want = np.mean([gradients[place] for gradients in of_ranks], axis=0)
            error = np.abs(np.asarray(gradient, np.float64) - want).max()
            if not error <= _TOLERANCE * np.abs(want).max() + _TINY:
                raise WrongResult(
                    f"gradient {place} is not the mean of those of the {size} ranks: it is off by "
                    f"{error:.3g}, and the largest of the mean is {np.abs(want).max():.3g}"
                )

    def check_learning(self) -> None:
        """Raises WrongResult unless the weights are finite and, after a step, have learned."""
        if not all(np.isfinite(weight.numpy()).all() for weight in self._weights):
            raise WrongResult(f"after {self._steps} steps not all weights are finite")
        loss = float(self._loss())
        if self._steps and not loss < self._first_loss:
            raise WrongResult(
                f"after {self._steps} steps the loss is {loss}, at first it was {self._first_loss}"
            )

    def digest(self) -> Any:
        """Four numbers that differ if the weights do."""
        seen = hashlib.sha256()
        for weight in self._weights:
            seen.update(weight.numpy().tobytes())
        return np.frombuffer(seen.digest(), np.int64)
