"""Checking from Keras' training loop that all ranks hold the same variables.

Importing this loads Keras, so that `horovod.tensorflow` does it at the first use only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.tensorflow import _compat
from horovod.tensorflow.consistency import PeriodicCheck
from horovod.tensorflow.other_keras import RefusesTfKeras

__all__ = ["CheckConsistencyCallback"]


class CheckConsistencyCallback(RefusesTfKeras, tf.keras.callbacks.Callback):
    """Runs `check_consistency` every few batches of `Model.fit`.

    Use it on every rank; all must train as many batches.

    Example:
      >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
      >>> model.compile("sgd", "mse")
      >>> check = hvd.CheckConsistencyCallback(every_n_steps=1)
      >>> _ = model.fit(tf.ones([4, 2]), tf.ones([4, 1]), callbacks=[check], verbose=0)
    """

    _supports_tf_logs = True  # Keras 2 need not fetch the metrics of each batch for this

    def __init__(
        self,
        every_n_steps: int,
        *,
        variables: Iterable[Any] | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Makes a callback.

        Args:
          every_n_steps: how many batches lie between two checks; >= 1.  With `steps_per_execution`
            above 1, how many executions.
          variables: as for `check_consistency`.  Default: the model's trainable variables; slots
            of the optimizer that differ show in these one step later.
          process_set: the ranks that are compared.

        Raises:
          ValueError: every_n_steps is no whole number above 0; or something is no variable.
        """
        super().__init__()
        who = "CheckConsistencyCallback"
        self._check = PeriodicCheck(who, every_n_steps, variables, process_set)

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Counts a step, and checks if it is time.

        Args:
          batch: not used: it begins anew with every epoch.
          logs: not used.
        """
        in_graph = not _compat.executing_eagerly()
        session = tf.compat.v1.keras.backend.get_session() if in_graph else None
        self._check.after_step(lambda: self.model.trainable_variables, session)
