"""Saves the best model of a training."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common import basics
from horovod.tensorflow.other_keras import RefusesTfKeras

__all__ = ["BestModelCheckpoint"]


class BestModelCheckpoint(RefusesTfKeras, tf.keras.callbacks.ModelCheckpoint):
    """Keras' ModelCheckpoint of the best model so far, whose file is named later; rank 0 saves.

    Set `filepath` before training.  With a `MetricAverageCallback` before it, "best" is of all
    ranks.

    Args:
      monitor: the metric that tells.
      verbose: 1 to print a line for each save.
      save_weights_only: whether to save the weights alone.
      mode: "min", "max", or "auto" to tell by the metric's name.
      save_freq: "epoch", or a number of batches.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: int | str = "epoch",
    ) -> None:
        super().__init__(
            "later.weights.h5" if save_weights_only else "later.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
        self.filepath: Any = None

    @staticmethod
    def _is_mine() -> bool:
        return not basics.is_initialized() or basics.rank() == 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Checks that there is a file to save to.

        Raises:
          ValueError: `filepath` is not set.
        """
        if self.filepath is None:
            raise ValueError(
                "BestModelCheckpoint: filepath is not set; write callback.filepath = "
                "'best.keras' before fit()"
            )
        super().on_train_begin(logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Saves on rank 0 if it is time to, and the model is the best."""
        if self._is_mine():
            super().on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Saves on rank 0 if the model is the best."""
        if self._is_mine():
            super().on_epoch_end(epoch, logs)
