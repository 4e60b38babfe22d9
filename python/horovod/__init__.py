"""Data-parallel training for TensorFlow: programs import ``horovod.tensorflow as hvd``.

Importing this package alone loads neither TensorFlow nor a shared object.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.29.0"
