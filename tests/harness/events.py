"""What a folder of event files shows in TensorBoard."""

from __future__ import annotations

import importlib.util
from pathlib import Path

__all__ = ["scalars_of"]


def scalars_of(logdir: str) -> dict[str, list[tuple[int, float]]]:
    """Reads event files with TensorBoard's own reader.

    TensorFlow 2.21 does not bring TensorBoard along; without it, TensorFlow reads the records.

    Args:
      logdir: the folder.

    Returns:
      (step, value) by tag, in the order of the files.
    """
    if importlib.util.find_spec("tensorboard") is None:
        return _read_by_tensorflow(logdir)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(logdir)
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def _read_by_tensorflow(logdir: str) -> dict[str, list[tuple[int, float]]]:
    import tensorflow as tf

    scalars: dict[str, list[tuple[int, float]]] = {}
    for path in sorted(Path(logdir).glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    return scalars
