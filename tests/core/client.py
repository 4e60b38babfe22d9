"""NumPy arrays through the C API: what the tests of the core use in place of TensorFlow."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from horovod.common import core
from horovod.common.reduce_ops import ReduceOp

__all__ = ["DTYPES", "Handle", "allgather", "allreduce", "barrier", "broadcast"]

_ALLREDUCE, _ALLGATHER, _BROADCAST, _BARRIER = 0, 1, 2, 5

# Every element type of the core, by its number there.
DTYPES = [
    np.dtype(t)
    for t in (
        "bool",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "int32",
        "int64",
        "float16",
        ml_dtypes.bfloat16,
        "float32",
        "float64",
    )
]

_WAIT_S = 60.0
_in_flight: set[Handle] = set()  # keeps callbacks and buffers alive until `done` has run


class Handle:
    """One request in flight.

    Attributes:
      id: what `hvd_cancel` takes.
    """

    def __init__(self, kind: int, array: Any, name: str, **fields: Any) -> None:
        self.input = np.ascontiguousarray(array)
        if self.input.ndim != np.ndim(array):  # NumPy makes a scalar one-dimensional
            self.input = self.input.reshape(np.shape(array))
        self.output: np.ndarray | None = None
        self._ended = threading.Event()
        self._code, self._text = core.OK, ""
        self._callbacks: tuple[Callable[..., Any], ...] = (
            core.ALLOCATE(self._allocate),
            core.DONE(self._done),
        )
        request = core.Request(
            name=name.encode(),
            kind=kind,
            dtype=DTYPES.index(self.input.dtype),
            prescale=1.0,
            postscale=1.0,
            shape=(ctypes.c_int64 * self.input.ndim)(*self.input.shape),
            ndim=self.input.ndim,
            input=self.input.ctypes.data,
            allocate=self._callbacks[0],
            done=self._callbacks[1],
        )
        for field, value in fields.items():
            setattr(request, field, value)
        number = ctypes.c_uint64()
        _in_flight.add(self)
        code = core.load().hvd_enqueue(ctypes.byref(request), ctypes.byref(number))
        if code != core.OK:
            _in_flight.discard(self)
        core.check(code)
        self.id = number.value

    def _allocate(self, _: Any, shape: Any, ndim: int, output: Any) -> int:
        self.output = np.empty([shape[i] for i in range(ndim)], self.input.dtype)
        output[0] = self.output.ctypes.data
        return core.OK

    def _done(self, _: Any, code: int, message: bytes) -> None:
        self._code, self._text = code, message.decode()
        _in_flight.discard(self)
        self._ended.set()

    def wait(self) -> Any:
        """Returns the result.

        Raises:
          core.CoreError: as the core ended the request.
          TimeoutError: it did not end.
        """
        if not self._ended.wait(_WAIT_S):
            raise TimeoutError("the request did not end")
        if self._code != core.OK:
            raise core.CoreError(self._code, self._text)
        return self.output


def allreduce(
    array: Any, name: str, op: ReduceOp = ReduceOp.Sum, process_set: int = 0, **fields: Any
) -> Handle:
    """Enqueues; `fields` are those of hvd_request, such as prescale."""
    return Handle(_ALLREDUCE, array, name, reduce_op=int(op), process_set=process_set, **fields)


def allgather(array: Any, name: str) -> Handle:
    """Enqueues."""
    return Handle(_ALLGATHER, array, name)


def broadcast(array: Any, root: int, name: str) -> Handle:
    """Enqueues."""
    return Handle(_BROADCAST, array, name, root=root)


def barrier(name: str = "barrier") -> Handle:
    """Enqueues."""
    return Handle(_BARRIER, np.zeros(0, "uint8"), name)
