"""The session hook that makes the metrics of an evaluation those of all ranks' data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Sum
from horovod.tensorflow.collectives import allreduce
from horovod.tensorflow.hooks import skips_evaluation

__all__ = ["MetricAverageHook"]


class MetricAverageHook(tf.compat.v1.train.SessionRunHook):
    """Makes the metrics of an evaluation those of all ranks' data, when the evaluation ends.

        hvd.BroadcastGlobalVariablesHook(0)  # for the ranks that have no checkpoint
        estimator.evaluate(input_fn, hooks=[broadcast_hook, hvd.MetricAverageHook()])

    A metric of `tf.compat.v1.metrics` or `tf.keras.metrics` is made of variables that add up over
    the data: a sum and a count, or the numbers of hits and misses.  This adds them up over the
    ranks before the metric is read, so every rank gets what one process would get that had seen
    all the data: each sample has the same weight, however many a rank had, and a metric that is no
    mean, such as an area under a curve, is right as well.  Estimator's own "loss" is a mean over
    batches, and becomes the mean over all ranks' batches.

    Every rank must use it in as many evaluations, and each must come to its end; the numbers of
    batches may differ, and be 0.

    Example:
      >>> correct = [True, False] if hvd.rank() == 0 else [True]
      >>> with tf.Graph().as_default():
      ...     accuracy, update = tf.compat.v1.metrics.mean(tf.cast(correct, tf.float32))
      ...     scaffold = tf.compat.v1.train.Scaffold()
      ...     hooks = [hvd.MetricAverageHook()]
      ...     with tf.compat.v1.train.SingularMonitoredSession(hooks=hooks) as session:
      ...         print(session.run(update))
      0.5
    """

    def __init__(
        self,
        variables: Sequence[Any] | None = None,
        *,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Makes a hook.

        Args:
          variables: those of the metrics; default: all in the collection
            `tf.compat.v1.GraphKeys.METRIC_VARIABLES`, where TensorFlow and Estimator put them.
            Ranks match them by name.  Leave out what is not a sum over the data.
          process_set: the ranks whose data count.
        """
        super().__init__()
        self._given = variables
        self._process_set = process_set
        self._add_up: tf.Operation | None = None

    def begin(self) -> None:
        """Adds the sums to the graph, which is not final yet.

        Raises:
          ValueError: there are no metrics; or `init()` was not called.
        """
        variables = self._given
        if variables is None:
            variables = tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.METRIC_VARIABLES)
        if not variables:
            raise ValueError(
                "MetricAverageHook: the graph has no variables of metrics; give the model metrics "
                "of tf.compat.v1.metrics or tf.keras.metrics, or pass variables="
            )
        self._add_up = tf.group(*(self._sum_of(variable) for variable in variables))

    def _sum_of(self, variable: Any) -> Any:
        total = allreduce(
            variable,
            op=Sum,
            name=f"MetricAverageHook_{variable.name}",
            process_set=self._process_set,
        )
        return variable.assign(total)

    def end(self, session: tf.compat.v1.Session) -> None:
        """Adds up the ranks' metrics.

        Args:
          session: that has evaluated this rank's data.

        Raises:
          tf.errors.UnknownError: a rank was lost, or has left; but not after a training that ended
            before its first step, which leaves nothing to evaluate together.
        """
        try:
            session.run(self._add_up)
        except tf.errors.UnknownError as error:
            if not skips_evaluation(error):
                raise
