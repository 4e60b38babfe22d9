"""The same as horovod.tensorflow.keras.callbacks, where the code is."""

from __future__ import annotations

from horovod.tensorflow.keras.callbacks import *  # noqa: F403
from horovod.tensorflow.keras.callbacks import __all__ as __all__
