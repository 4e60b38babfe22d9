"""The elastic names of Keras programs; elastic training is not built yet."""

from __future__ import annotations

from typing import Any

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class _NotBuiltYet:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__}: elastic training is not built yet; save checkpoints, and "
            "restart the job from one"
        )


class KerasState(_NotBuiltYet):
    """The state of a model and its optimizer, to restore when ranks come and go."""


class CommitStateCallback(_NotBuiltYet):
    """Commits a state every few batches."""


class UpdateBatchStateCallback(_NotBuiltYet):
    """Counts batches in a state."""


class UpdateEpochStateCallback(_NotBuiltYet):
    """Counts epochs in a state."""


def run(func: Any) -> Any:
    """Runs a function again when ranks come and go.

    Args:
      func: that trains.

    Raises:
      NotImplementedError: always, for now.
    """
    raise NotImplementedError(
        "hvd.elastic.run: elastic training is not built yet; save checkpoints, and restart the "
        "job from one"
    )
