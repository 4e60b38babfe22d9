"""Data-parallel training for TensorFlow: programs import ``horovod.tensorflow as hvd``.

Importing this package alone loads neither TensorFlow nor a shared object.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.29.0"

# What programs look for here, and what to do instead.
_ELSEWHERE = {
    "run": "start the program by `horovodrun -np N python program.py`; calls by function are not "
    "built yet",
    "init": "import horovod.tensorflow as hvd, then call hvd.init()",
}


def __getattr__(name: str) -> object:
    """Says where to look for what is not here."""
    cure = f": {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    raise AttributeError(f"module 'horovod' has no attribute {name!r}{cure}")
