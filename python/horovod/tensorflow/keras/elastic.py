"""The elastic names of Keras programs; elastic training is not built yet."""

from __future__ import annotations

from horovod.tensorflow.elastic import NotBuiltYet, run

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class KerasState(NotBuiltYet):
    """The state of a model and its optimizer, to restore when ranks come and go."""


class CommitStateCallback(NotBuiltYet):
    """Commits a state every few batches."""


class UpdateBatchStateCallback(NotBuiltYet):
    """Counts batches in a state."""


class UpdateEpochStateCallback(NotBuiltYet):
    """Counts epochs in a state."""
