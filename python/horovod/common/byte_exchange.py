"""Bytes between ranks, through the C API: no framework takes part.

The calls block, and return on every rank when its part is done; Ctrl-C works meanwhile.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from horovod.common import core
from horovod.common.process_sets import ProcessSet

__all__ = ["allgather_bytes", "broadcast_bytes"]

_ALLGATHER, _BROADCAST = map(core.KINDS.index, ("allgather", "broadcast"))
_UINT8, _INT64 = map(core.DTYPES.index, ("uint8", "int64"))
_ITEM_BYTES = {_UINT8: 1, _INT64: 8}

_in_flight: set[_Call] = set()  # keeps callbacks and buffers alive until the core is done


class _Call:
    """One collective on a one-dimensional array, from the enqueuing to its end.

    Args:
      kind: hvd_kind.
      name: the tensor's.
      dtype: hvd_dtype.
      data: the array's bytes.
      **fields: those of hvd_request.
    """

    def __init__(self, kind: int, name: str, dtype: int, data: bytes, **fields: int) -> None:
        self._input = ctypes.create_string_buffer(data, len(data))
        self._output: Any = b""
        self._item_bytes = _ITEM_BYTES[dtype]
        self._over = threading.Event()
        self._code, self._text = core.OK, ""
        self._callbacks: tuple[Callable[..., Any], ...] = (
            core.ALLOCATE(self._allocate),
            core.DONE(self._done),
        )
        shape = (ctypes.c_int64 * 1)(len(data) // self._item_bytes)
        tensor = core.Tensor(shape=shape, ndim=1, input=ctypes.addressof(self._input))
        request = core.Request(
            name=name.encode(),
            kind=kind,
            dtype=dtype,
            prescale=1.0,
            postscale=1.0,
            tensors=ctypes.pointer(tensor),
            num_tensors=1,
            allocate=self._callbacks[0],
            done=self._callbacks[1],
            **fields,
        )
        _in_flight.add(self)
        code = core.load().hvd_enqueue(ctypes.byref(request), ctypes.byref(ctypes.c_uint64()))
        if code != core.OK:
            _in_flight.discard(self)
        core.check(code)

    def _allocate(self, _: Any, tensor: int, shape: Any, ndim: int, output: Any) -> int:
        self._output = ctypes.create_string_buffer(shape[0] * self._item_bytes)
        output[0] = ctypes.addressof(self._output)
        return core.OK

    def _done(self, _: Any, code: int, message: bytes) -> None:
        self._code, self._text = code, message.decode()
        _in_flight.discard(self)
        self._over.set()

    def result(self) -> memoryview:
        """Waits for the end.

        Returns:
          The result's bytes.

        Raises:
          CoreError: the collective failed.
        """
        while not self._over.wait(core.SLICE_S):
            pass  # a rank that is lost ends it, and so does a mismatch
        if self._code != core.OK:
            raise core.CoreError(self._code, self._text)
        return memoryview(self._output)


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _int64s(data: memoryview) -> list[int]:
    return [
        int.from_bytes(data[at : at + 8], "little", signed=True) for at in range(0, len(data), 8)
    ]


def broadcast_bytes(data: bytes, root_rank: int, name: str, process_set: ProcessSet) -> memoryview:
    """Gives every rank the root's bytes.

    Args:
      data: of any length, the root's alone counts.
      root_rank: whose; a rank of the job.
      name: the same on all ranks.
      process_set: the ranks that take part, known to the ranks.

    Returns:
      The bytes.

    Raises:
      CoreError: a collective failed.
    """
    fields = {"root": root_rank, "process_set": int(process_set.process_set_id or 0)}
    is_root = core.load().hvd_rank() == root_rank
    length = _Call(_BROADCAST, f"{name}.size", _INT64, _int64(len(data)), **fields).result()
    data = data if is_root else bytes(_int64s(length)[0])
    return _Call(_BROADCAST, f"{name}.data", _UINT8, data, **fields).result()


def allgather_bytes(data: bytes, name: str, process_set: ProcessSet) -> list[memoryview]:
    """Gives every rank all ranks' bytes.

    Args:
      data: of any length.
      name: the same on all ranks.
      process_set: the ranks that take part, known to the ranks.

    Returns:
      The bytes of each rank, in rank order.

    Raises:
      CoreError: a collective failed.
    """
    fields = {"process_set": int(process_set.process_set_id or 0)}
    sizes = _Call(_ALLGATHER, f"{name}.sizes", _INT64, _int64(len(data)), **fields)
    all_data = _Call(_ALLGATHER, f"{name}.data", _UINT8, data, **fields).result()
    parts, begin = [], 0
    for size in _int64s(sizes.result()):
        parts.append(all_data[begin : begin + size])
        begin += size
    return parts
