"""Keras callbacks for training on several ranks.  Every rank passes the same ones to `fit`."""

from __future__ import annotations

from horovod.tensorflow.consistency_callback import CheckConsistencyCallback
from horovod.tensorflow.keras.callbacks.agreed_stopping import AgreedEarlyStopping
from horovod.tensorflow.keras.callbacks.broadcast import BroadcastGlobalVariablesCallback
from horovod.tensorflow.keras.callbacks.checkpoint import BestModelCheckpoint
from horovod.tensorflow.keras.callbacks.learning_rate import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from horovod.tensorflow.keras.callbacks.metric_average import MetricAverageCallback

__all__ = [
    "AgreedEarlyStopping",
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CheckConsistencyCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]
