"""What a folder of event files shows in TensorBoard."""

from __future__ import annotations

import importlib.util

__all__ = ["scalars_of"]


def scalars_of(logdir: str) -> dict[str, list[tuple[int, float]]] | None:
    """Reads event files with TensorBoard's own reader.

    Args:
      logdir: the folder.

    Returns:
      (step, value) by tag, in the order of the file; None where TensorBoard is not installed.
    """
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(logdir)
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }
