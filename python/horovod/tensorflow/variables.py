"""What a variable or tensor is known by: as a key, and in texts and names."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat

__all__ = ["label", "reference"]


def reference(source: Any) -> Any:
    """Returns what stands for a variable or tensor in a set or as a key."""
    return (source if isinstance(source, tf.Tensor) else _compat.tensorflow_variable(source)).ref()


def label(source: Any) -> str:
    """Returns the name of a variable or tensor; '' if it has none."""
    # In Keras 3 a name is that of a layer's part, such as "kernel", and the path the whole.
    return getattr(source, "path", None) or getattr(source, "name", None) or ""
