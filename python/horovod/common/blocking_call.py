"""One collective through the C API, on bytes: no framework takes part."""

from __future__ import annotations

import atexit
import ctypes
import math
import threading
from collections.abc import Callable
from typing import Any

from horovod.common import core

__all__ = ["BlockingCall", "INT32", "INT64", "UINT8"]

UINT8, INT32, INT64 = map(core.DTYPES.index, ("uint8", "int32", "int64"))
_ITEM_BYTES = {UINT8: 1, INT32: 4, INT64: 8}

_in_flight: set[BlockingCall] = set()  # keeps callbacks and buffers alive until the core is done
_LAST_CALL_S = 5.0


@atexit.register
def _end_all() -> None:
    """Ends what another thread still waits for.

    A callback that comes when Python has been finalized would end the core's thread, and nobody
    could leave the job any more.
    """
    for call in list(_in_flight):
        call.end()


class BlockingCall:
    """One collective on an array, from the enqueuing to its end.

    Args:
      kind: hvd_kind.
      name: the tensor's.
      dtype: UINT8, INT32 or INT64.
      data: the array's bytes.
      scalar: whether the array has no dimensions; else it has one.
      **fields: those of hvd_request.

    Raises:
      CoreError: the request is wrong.
    """

    def __init__(
        self, kind: int, name: str, dtype: int, data: bytes, *, scalar: bool = False, **fields: Any
    ) -> None:
        self._input = ctypes.create_string_buffer(data, len(data))
        self._output: Any = b""
        self._item_bytes = _ITEM_BYTES[dtype]
        self._over = threading.Event()
        self._code, self._text = core.OK, ""
        self._callbacks: tuple[Callable[..., Any], ...] = (
            core.ALLOCATE(self._allocate),
            core.DONE(self._done),
        )
        shape = [] if scalar else [len(data) // self._item_bytes]
        tensor = core.Tensor(
            shape=(ctypes.c_int64 * len(shape))(*shape),
            ndim=len(shape),
            input=ctypes.addressof(self._input),
        )
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
        self._id = ctypes.c_uint64()
        code = core.load().hvd_enqueue(ctypes.byref(request), ctypes.byref(self._id))
        if code != core.OK:
            _in_flight.discard(self)
        core.check(code)

    def _allocate(self, _: Any, tensor: int, shape: Any, ndim: int, output: Any) -> int:
        try:
            self._output = ctypes.create_string_buffer(math.prod(shape[:ndim]) * self._item_bytes)
        except MemoryError:  # which the core's thread would not get, but any number for a code
            return core.INTERNAL
        output[0] = ctypes.addressof(self._output)
        return core.OK

    def _done(self, _: Any, code: int, message: bytes) -> None:
        self._code, self._text = code, message.decode()
        _in_flight.discard(self)
        self._over.set()

    def result(self) -> memoryview:
        """Waits for the end; Ctrl-C works meanwhile, and withdraws the request if it still can.

        Returns:
          The result's bytes.

        Raises:
          CoreError: the collective failed.
        """
        try:
            self._wait()
        except BaseException:  # KeyboardInterrupt, most likely
            core.load().hvd_cancel(self._id)
            self._wait()
            raise
        if self._code != core.OK:
            raise core.CoreError(self._code, self._text)
        return self.output

    def end(self) -> None:
        """Withdraws the request if it still can, and waits some seconds for the end."""
        core.load().hvd_cancel(self._id)
        self._over.wait(_LAST_CALL_S)

    @property
    def output(self) -> memoryview:
        """The result's bytes, once it has run."""
        return memoryview(self._output)

    @property
    def has_run(self) -> bool:
        """Whether it came to a good end, even if `result` was interrupted."""
        return self._over.is_set() and self._code == core.OK

    def _wait(self) -> None:
        while not self._over.wait(core.SLICE_S):
            pass  # a rank that is lost ends it, and so does a mismatch
