"""NumPy arrays through the C API: what the tests of the core use in place of TensorFlow."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from horovod.common import core
from horovod.common.reduce_ops import ReduceOp

__all__ = [
    "DTYPES",
    "Handle",
    "allgather",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "join",
    "reducescatter",
    "request",
]

_ALLREDUCE, _ALLGATHER, _BROADCAST, _ALLTOALL, _REDUCESCATTER, _BARRIER, _JOIN = range(7)

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


def request(
    kind: int, name: str, buffers: Sequence[tuple[np.ndarray, np.ndarray | None]], **fields: Any
) -> core.Request:
    """Fills in a request, which holds the arrays' addresses but not the arrays.

    Args:
      kind: hvd_kind.
      name: the tensor's.
      buffers: the input and the output, if it is known, of each tensor; of one dtype.
      **fields: those of hvd_request.
    """
    tensors = (core.Tensor * len(buffers))()
    for tensor, (input_, output) in zip(tensors, buffers):
        tensor.shape = (ctypes.c_int64 * input_.ndim)(*input_.shape)
        tensor.ndim = input_.ndim
        tensor.input = input_.ctypes.data
        tensor.output = None if output is None else output.ctypes.data
    made = core.Request(
        name=name.encode(),
        kind=kind,
        dtype=DTYPES.index(buffers[0][0].dtype) if buffers else 0,
        prescale=1.0,
        postscale=1.0,
        tensors=tensors,
        num_tensors=len(buffers),
    )
    for field, value in fields.items():
        setattr(made, field, value)
    return made


class Handle:
    """One request in flight.

    Attributes:
      id: what `hvd_cancel` takes.
      received_splits: of an alltoall, once it has ended.
    """

    def __init__(
        self,
        kind: int,
        arrays: Any,
        name: str,
        *,
        grouped: bool = False,
        splits: Sequence[int] | None = None,
        **fields: Any,
    ) -> None:
        self._grouped = grouped
        of_kind = [] if kind == _BARRIER else [arrays]
        self.inputs = [_contiguous(array) for array in (arrays if grouped else of_kind)]
        self.outputs: list[np.ndarray | None] = [None] * len(self.inputs)
        self.received_splits: list[int] = []
        if kind == _ALLTOALL:
            size = core.load().hvd_process_set_size(fields.get("process_set", 0))
            self._received = (ctypes.c_int32 * max(size, 0))()
            fields["received_splits"] = self._received
        if splits is not None:
            fields["splits"] = (ctypes.c_int32 * len(splits))(*splits)
            fields["num_splits"] = len(splits)
        self._ended = threading.Event()
        self._code, self._text = core.OK, ""
        self._callbacks: tuple[Callable[..., Any], ...] = (
            core.ALLOCATE(self._allocate),
            core.DONE(self._done),
        )
        made = request(
            kind,
            name,
            [(array, None) for array in self.inputs],
            grouped=int(grouped),
            allocate=self._callbacks[0],
            done=self._callbacks[1],
            **fields,
        )
        number = ctypes.c_uint64()
        _in_flight.add(self)
        code = core.load().hvd_enqueue(ctypes.byref(made), ctypes.byref(number))
        if code != core.OK:
            _in_flight.discard(self)
        core.check(code)
        self.id = number.value

    def _allocate(self, _: Any, tensor: int, shape: Any, ndim: int, output: Any) -> int:
        array = np.empty([shape[i] for i in range(ndim)], self.inputs[tensor].dtype)
        self.outputs[tensor] = array
        output[0] = array.ctypes.data
        return core.OK

    def _done(self, _: Any, code: int, message: bytes) -> None:
        self._code, self._text = code, message.decode()
        _in_flight.discard(self)
        self._ended.set()

    def wait(self) -> Any:
        """Returns the result; of a group, the list of them.

        Raises:
          core.CoreError: as the core ended the request.
          TimeoutError: it did not end.
        """
        if not self._ended.wait(_WAIT_S):
            raise TimeoutError("the request did not end")
        if self._code != core.OK:
            raise core.CoreError(self._code, self._text)
        if hasattr(self, "_received"):
            self.received_splits = list(self._received)
        if self._grouped:
            return self.outputs
        return self.outputs[0] if self.outputs else None


def _contiguous(array: Any) -> np.ndarray:
    made = np.ascontiguousarray(array)
    # NumPy makes a scalar one-dimensional.
    return made if made.ndim == np.ndim(array) else made.reshape(np.shape(array))


def allreduce(array: Any, name: str, op: ReduceOp = ReduceOp.Sum, **fields: Any) -> Handle:
    """Enqueues; `fields` are those of hvd_request, such as prescale.  A group: grouped=True."""
    return Handle(_ALLREDUCE, array, name, reduce_op=int(op), **fields)


def allgather(array: Any, name: str, **fields: Any) -> Handle:
    """Enqueues."""
    return Handle(_ALLGATHER, array, name, **fields)


def broadcast(array: Any, root: int, name: str, **fields: Any) -> Handle:
    """Enqueues."""
    return Handle(_BROADCAST, array, name, root=root, **fields)


def alltoall(array: Any, name: str, splits: Sequence[int] | None = None, **fields: Any) -> Handle:
    """Enqueues."""
    return Handle(_ALLTOALL, array, name, splits=splits, **fields)


def reducescatter(array: Any, name: str, op: ReduceOp = ReduceOp.Sum, **fields: Any) -> Handle:
    """Enqueues."""
    return Handle(_REDUCESCATTER, array, name, reduce_op=int(op), **fields)


def barrier(name: str = "barrier", **fields: Any) -> Handle:
    """Enqueues."""
    return Handle(_BARRIER, None, name, **fields)


def join() -> Handle:
    """Enqueues; the result is the rank that joined last."""
    return Handle(_JOIN, np.zeros((), "int32"), "join")
