"""What the build wrote into the op library of a framework."""

from __future__ import annotations

import mmap
from pathlib import Path

__all__ = ["built_for", "op_library_path"]

_MARKER = b"horovod built for tensorflow "


def op_library_path() -> Path:
    """Returns where the op library for TensorFlow lies in the installed package."""
    return Path(__file__).absolute().parents[1] / "tensorflow" / "_tf_ops.so"


def built_for(path: Path) -> str | None:
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
    with path.open("rb") as file:
        if path.stat().st_size == 0:  # cannot be mapped
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            begin = data.find(_MARKER)
            if begin < 0:
                return None
            begin += len(_MARKER)
            return data[begin : data.find(b"\0", begin)].decode("ascii", "replace")
