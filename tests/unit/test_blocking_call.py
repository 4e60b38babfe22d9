"""A collective through the C API: what its callbacks tell the core."""

from __future__ import annotations

import ctypes

from horovod.common import core
from horovod.common.blocking_call import BlockingCall


def test_no_memory_for_a_result_is_an_error_to_the_core(monkeypatch):
    def no_memory(size: int) -> None:
        raise MemoryError

    call = BlockingCall.__new__(BlockingCall)
    call._item_bytes = 8
    monkeypatch.setattr(ctypes, "create_string_buffer", no_memory)
    allocate = core.ALLOCATE(call._allocate)
    output = ctypes.c_void_p()
    assert allocate(None, 0, (ctypes.c_int64 * 1)(3), 1, output) == core.INTERNAL
    assert output.value is None
    monkeypatch.undo()
    assert allocate(None, 0, (ctypes.c_int64 * 1)(3), 1, output) == core.OK
    assert output.value is not None
