"""The elastic names of TensorFlow programs; elastic training is not built yet.

A program that imports them or asks for `hvd.elastic` works as long as it uses none.
"""

from __future__ import annotations

from typing import Any

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]

_WHAT_TO_DO = "elastic training is not built yet; save checkpoints, and restart the job from one"


class NotBuiltYet:
    """What classes have in common that are not built yet: making one raises."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Makes nothing.

        Args:
          *args: any.
          **kwargs: any.

        Raises:
          NotImplementedError: always, for now.
        """
        raise NotImplementedError(f"{type(self).__name__}: {_WHAT_TO_DO}")


class TensorFlowKerasState(NotBuiltYet):
    """The state of a Keras model and its optimizer, to restore when ranks come and go."""


class TensorFlowState(NotBuiltYet):
    """Variables, to restore when ranks come and go."""


def run(func: Any) -> Any:
    """Runs a function again when ranks come and go.

    Args:
      func: that trains.

    Raises:
      NotImplementedError: always, for now.
    """
    raise NotImplementedError(f"hvd.elastic.run: {_WHAT_TO_DO}")
