"""The same as horovod.tensorflow.keras, where the code is."""

from __future__ import annotations

from horovod.tensorflow.keras import *  # noqa: F403
from horovod.tensorflow.keras import __all__ as __all__
