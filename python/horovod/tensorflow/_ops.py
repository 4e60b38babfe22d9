"""Finds and loads the op library, `_tf_ops.so`, which lies beside this file."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType

import tensorflow as tf

from horovod.common import build_info, core
from horovod.common.exceptions import HorovodVersionMismatchError
from horovod.tensorflow import _compat

__all__ = ["library", "op_library_path"]


def op_library_path() -> str:
    """Returns the absolute path of the op library, for `tf.load_op_library`.

    Example:
      >>> tf.load_op_library(hvd.op_library_path()).horovod_size().numpy()
      1
    """
    return str(build_info.op_library_path())


@functools.cache
def library() -> ModuleType:
    """Loads the op library at the first call.

    Returns:
      The module that TensorFlow makes of it: one function per raw op.

    Raises:
      HorovodVersionMismatchError: it was built for another TensorFlow.
      ImportError: it is missing or does not load.
    """
    path = op_library_path()
    try:
        version = build_info.built_for(Path(path))
    except OSError as error:
        raise ImportError(
            f"horovod.tensorflow: no op library ({error}); run: make build TF={tf.__version__}"
        ) from error
    if version != tf.__version__:
        raise HorovodVersionMismatchError("TensorFlow", tf.__version__, version or "unknown")
    core.load()
    try:
        ops = tf.load_op_library(path)
    except tf.errors.OpError as error:
        raise ImportError(f"horovod.tensorflow: cannot load {path}: {error.message}") from error
    _compat.let_run_in_any_order()
    return ops
