"""The same as horovod.tensorflow.keras.elastic, where the code is."""

from __future__ import annotations

from horovod.tensorflow.keras.elastic import *  # noqa: F403
from horovod.tensorflow.keras.elastic import __all__ as __all__
