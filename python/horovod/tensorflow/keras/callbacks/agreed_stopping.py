"""Stops all ranks when one stops."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import basics
from horovod.tensorflow.arguments import require_whole_number
from horovod.tensorflow.keras import _override_points
from horovod.tensorflow.keras.callbacks.broadcast import give_all
from horovod.tensorflow.objects import allgather_object
from horovod.tensorflow.other_keras import RefusesTfKeras
from horovod.tensorflow.variables import reference

__all__ = ["AgreedEarlyStopping"]


class AgreedEarlyStopping(RefusesTfKeras, tf.keras.callbacks.Callback):
    """Ends training on all ranks, after the same step, when any rank's callback wants it to end.

    A rank that set `model.stop_training` alone would leave the others waiting for its gradients.
    Place this last, after EarlyStopping, TerminateOnNaN and whatever else sets `stop_training`.
    Where all ranks decide by the same numbers, as EarlyStopping does after MetricAverageCallback,
    it is not needed.

    After a stop all ranks get the weights of the first rank that wanted it, which EarlyStopping
    may have restored; local variables and layers are each rank's own.  Without a
    stop, EarlyStopping of Keras 3 restores each rank's best, which are the same weights only after
    MetricAverageCallback.

    Args:
      every_batches: after how many batches the ranks ask each other; a wish from between waits.
        They also do after each epoch.  Asking costs about as much as a small collective.  0: after
        each epoch only.
    """

    _supports_tf_logs = True  # Keras 2 need not fetch the metrics of each batch for this

    def __init__(self, every_batches: int = 1) -> None:
        super().__init__()
        require_whole_number("AgreedEarlyStopping", "every_batches", every_batches, least=0)
        self.every_batches = every_batches
        self._wanted = False
        self._batches = 0
        self._stopped_by: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        """Begins anew."""
        self._wanted = False
        self._batches = 0
        self._stopped_by = None

    def on_train_end(self, logs: Any = None) -> None:
        """Gives all ranks the weights of the one that stopped."""
        if self._stopped_by is not None:
            local = _override_points.local_variables(self.model)
            own = {reference(variable) for variable in local}
            give_all(
                lambda: [v for v in self.model.weights if reference(v) not in own],
                self._stopped_by,
            )

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Holds a wish back, or asks the others."""
        self._hold()
        self._batches += 1
        if self.every_batches and self._batches % self.every_batches == 0:
            self._ask(f"batch {batch}")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Asks the others."""
        self._hold()
        self._ask(f"epoch {epoch}")

    def _hold(self) -> None:
        self._wanted = self._wanted or bool(self.model.stop_training)
        self.model.stop_training = False

    def _ask(self, when: str) -> None:
        everyone = allgather_object(self._wanted, name="AgreedEarlyStopping")
        stopping = [rank for rank, wants in enumerate(everyone) if wants]
        if not stopping:
            return
        self.model.stop_training = True
        self._stopped_by = stopping[0]
        if basics.rank() == 0 and len(stopping) < len(everyone):
            ranks = ", ".join(map(str, stopping))
            print(f"AgreedEarlyStopping: all ranks stop after {when}, as rank {ranks} wants to.")
