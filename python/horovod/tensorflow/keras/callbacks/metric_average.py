"""Averages an epoch's metrics over the ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from horovod.tensorflow.objects import allgather_object
from horovod.tensorflow.other_keras import RefusesTfKeras

__all__ = ["MetricAverageCallback"]


class MetricAverageCallback(RefusesTfKeras, tf.keras.callbacks.Callback):
    """Replaces the metrics of an epoch by their averages over the ranks.

    Callbacks after it (ReduceLROnPlateau, EarlyStopping, ModelCheckpoint) and the history see the
    averages, the same on all ranks, so place it before them.

    Ranks weigh as much as they have seen samples, in training and in validation, when all know how
    many; else all the same.  A metric that some ranks lack, such as `val_loss` where one rank
    validates, is the average of the others.

    Args:
      device: accepted for old programs; averages are made on the host.
    """

    # Keras 2 need not fetch the metrics of each batch from the device for this.
    _supports_tf_logs = True

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device
        self._forget()

    def _forget(self) -> None:
        self._train_samples: float | None = None
        self._test_samples: float | None = None
        self._testing = False
        self._sizes = {False: 0, True: 0}  # by whether it is validation; in compat.v1 graphs

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Begins to count samples."""
        self._forget()

    def on_test_begin(self, logs: Any = None) -> None:
        """Notes how many samples were trained on, before validation resets the metrics."""
        if self._train_samples is None:
            self._train_samples = self._samples()
        self._testing = True

    def on_test_end(self, logs: Any = None) -> None:
        """Notes how many samples were validated."""
        self._test_samples = self._samples()
        self._testing = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the samples of a batch, which only compat.v1 graphs tell."""
        self._sizes[False] += (logs or {}).get("size", 0)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Counts the samples of a batch, which only compat.v1 graphs tell."""
        self._sizes[True] += (logs or {}).get("size", 0)

    def _samples(self) -> float | None:
        """Returns how many samples the metrics have seen since they were reset, if known."""
        if self._sizes[self._testing]:
            return float(self._sizes[self._testing])
        if not tf.executing_eagerly():
            return None
        # Keras weighs the loss of each batch by its number of samples.
        losses = [metric for metric in self.model.metrics if metric.name == "loss"]
        count = getattr(losses[0], "count", None) if losses else None
        return None if count is None else float(tf.convert_to_tensor(count))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Averages the epoch's metrics in place."""
        logs = {} if logs is None else logs  # a rank without metrics still answers the others
        if self._train_samples is None:
            self._train_samples = self._samples()
        weights = {False: self._train_samples, True: self._test_samples}
        mine = {
            name: (float(value), weights[name.startswith("val_")])
            for name, value in logs.items()
            if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "biuf"
        }
        everyone = allgather_object(mine, name="MetricAverageCallback")
        for name in dict.fromkeys(name for one in everyone for name in one):
            logs[name] = _average([one[name] for one in everyone if name in one])


def _average(values_and_weights: list[tuple[float, float | None]]) -> float:
    """Returns the weighted mean; the plain one unless all weights are known."""
    values = [value for value, _ in values_and_weights]
    if all(value == values[0] for value in values):
        return values[0]  # untouched by rounding: a learning rate, say
    weights = [weight for _, weight in values_and_weights]
    if None in weights or not sum(weights):  # type: ignore[arg-type]
        return sum(values) / len(values)
    return float(np.average(values, weights=weights))
