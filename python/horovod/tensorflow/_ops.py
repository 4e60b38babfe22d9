"""Finds and loads the op library, `_tf_ops.so`, which lies beside this file."""

from __future__ import annotations

import functools
import mmap
from pathlib import Path
from types import ModuleType

import tensorflow as tf

from horovod.common import core
from horovod.tensorflow import _compat

__all__ = ["built_for", "library", "op_library_path"]

_MARKER = b"horovod built for tensorflow "


def op_library_path() -> str:
    """Returns the absolute path of the op library, for `tf.load_op_library`."""
    return str(Path(__file__).absolute().with_name("_tf_ops.so"))


def built_for(path: str) -> str | None:
    """Returns the TensorFlow version that an op library was built for.

    It is read from the file, since loading a library under another TensorFlow fails with nothing
    but an undefined symbol.

    Args:
      path: of the library; it is not loaded.

    Returns:
      A version such as "2.15.1"; None if the file records none.

    Raises:
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        begin = data.find(_MARKER)
        if begin < 0:
            return None
        begin += len(_MARKER)
        return data[begin : data.find(b"\0", begin)].decode("ascii", "replace")


@functools.cache
def library() -> ModuleType:
    """Loads the op library at the first call.

    Returns:
      The module that TensorFlow makes of it: one function per raw op.

    Raises:
      ImportError: the library is missing, was built for another TensorFlow, or does not load.
    """
    path = op_library_path()
    rebuild = f"run: make build TF={tf.__version__}"
    try:
        version = built_for(path)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise ImportError(f"horovod.tensorflow: no op library ({error}); {rebuild}") from error
    if version != tf.__version__:
        raise ImportError(
            f"horovod.tensorflow: {path} was built for TensorFlow {version or 'unknown'}, but "
            f"TensorFlow {tf.__version__} is installed; {rebuild}"
        )
    core.load()
    try:
        ops = tf.load_op_library(path)
    except tf.errors.OpError as error:
        raise ImportError(f"horovod.tensorflow: cannot load {path}: {error.message}") from error
    _compat.let_run_in_any_order()
    return ops
