"""Requests that a rank may leave in flight when it ends: no Python runs at their completion.

`tests.core.client` completes a request in Python, on the core's thread.  In an interpreter that
is shutting down such a call never returns, and an exception from a signal handler may leave the
lock taken for which it waits; no framework's completion does either.  Here buffers are never freed
and the completion is a semaphore of the C library.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from horovod.common import core
from tests.core.client import request

__all__ = ["LastingRequest"]

_SEM_BYTES = 64  # at least sizeof(sem_t), which is 32 on the machines that glibc knows

_libc = ctypes.CDLL(None, use_errno=True)
# It takes the context alone; in the C calling convention more arguments do no harm.
_POST = ctypes.cast(_libc.sem_post, core.DONE)


class LastingRequest:
    """A collective that can be made again and again, one at a time.

    Args:
      kind: hvd_kind.
      array: the input; its values are those of every call until `input` is written to.
      output_shape: of the result.
      name: the tensor's.
      **fields: those of hvd_request.
    """

    def __init__(
        self, kind: int, array: Any, output_shape: tuple[int, ...], name: str, **fields: Any
    ) -> None:
        self.input = np.array(array)
        self.output = np.empty(output_shape, self.input.dtype)
        self._sem = ctypes.create_string_buffer(_SEM_BYTES)
        if _libc.sem_init(self._sem, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "sem_init")
        self._request = request(
            kind,
            name,
            [(self.input, self.output)],
            done=_POST,
            context=ctypes.addressof(self._sem),
            **fields,
        )
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))  # outlives the interpreter

    def start(self) -> None:
        """Enqueues.

        Raises:
          core.CoreError: as the core refused the request.
        """
        core.check(core.load().hvd_enqueue(ctypes.byref(self._request), ctypes.c_uint64()))

    def wait(self) -> Any:
        """Returns the result, or what there is of it: an error is seen by the next `start`."""
        while _libc.sem_wait(self._sem) != 0:  # a signal came, and its handler has run
            pass
        return self.output
