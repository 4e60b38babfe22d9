"""More than 2^31 elements and more than 4 GiB in one tensor: right to the last byte, or refused.

There is next to no memory behind these tensors.  An input is pages that nobody has written, which
read as zeros; an output is one small file that is mapped again and again.  Only the windows around
the marked elements have pages of their own.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.reduce_ops import ReduceOp
from tests.core import client
from tests.core.reference import rows_kept
from tests.harness.ranks import run_ranks

_FILE_BYTES = 64 << 20
_HUGE_PAGE_BYTES = 2 << 20
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_MADV_HUGEPAGE = 14
_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE
_UNWRITTEN = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _map(address: int | None, size: int, flags: int, file: int = -1) -> int:
    if address is not None:
        flags |= _MAP_FIXED
    mapped = _libc.mmap(address, size, _READ_WRITE, flags, file, 0)
    if mapped == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), f"cannot map {size} bytes")
    _libc.madvise(mapped, size, _MADV_HUGEPAGE)  # or a million faults take most of the time
    return int(mapped)


def _page(byte: int) -> int:
    return byte // mmap.PAGESIZE * mmap.PAGESIZE


class Region:
    """Bytes that read as zeros until they are written, at the price of some of them.

    Args:
      size: bytes.
      windows: where bytes are kept.  Default: everywhere, which is for what is hardly written.
        Elsewhere what is written shows at every multiple of the file's size from there.
    """

    def __init__(self, size: int, windows: Iterable[int] | None = None) -> None:
        self._size = size
        self._reserved = size + _HUGE_PAGE_BYTES
        self._reserved_at = _map(None, self._reserved, _UNWRITTEN)
        # The next multiple of a huge page.
        self._address = -(-self._reserved_at // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        self._file = os.memfd_create("elsewhere")
        os.ftruncate(self._file, _FILE_BYTES)
        if windows is not None:
            for begin in range(0, size, _FILE_BYTES):
                some = min(_FILE_BYTES, size - begin)
                _map(self._address + begin, some, mmap.MAP_SHARED | mmap.MAP_POPULATE, self._file)
            for byte in windows:
                begin = _page(max(byte - 1, 0))
                end = min(_page(byte + 1) + mmap.PAGESIZE, size)
                _map(self._address + begin, end - begin, _UNWRITTEN)

    @property
    def bytes(self) -> Any:
        """All of it, as uint8."""
        return np.ctypeslib.as_array((ctypes.c_uint8 * self._size).from_address(self._address))

    def elsewhere_is_zero(self) -> bool:
        """Returns whether nothing but zeros was written outside the windows."""
        return not np.frombuffer(os.pread(self._file, _FILE_BYTES, 0), np.uint64).any()

    def close(self) -> None:
        _libc.munmap(self._reserved_at, self._reserved)
        os.close(self._file)


class _Into(client.Handle):
    """A request whose result comes to lie in a Region with windows of its own."""

    def __init__(self, windows: Iterable[int], kind: str, array: Any, **fields: Any) -> None:
        self._windows = windows
        super().__init__(core.KINDS.index(kind), array, kind, **fields)

    def _allocate(self, _: Any, tensor: int, shape: Any, ndim: int, output: Any) -> int:
        dimensions = [shape[i] for i in range(ndim)]
        self.region = Region(math.prod(dimensions), self._windows)
        array = self.region.bytes.reshape(dimensions)
        self.outputs[tensor] = array
        output[0] = array.ctypes.data
        return core.OK


def _marks(size: int) -> list[int]:
    """The bytes that are not zero, where an offset of too few bits would go wrong."""
    places = (0, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**32 + 1, size // 2, size - 1)
    return sorted({place for place in places if place < size})


def _value(rank: int, mark: int) -> int:
    return 1 + (mark + 3 * rank) % 17


@contextlib.contextmanager
def _marked(rank: int, shape: tuple[int, ...]) -> Iterator[Any]:
    """Yields a rank's input."""
    region = Region(math.prod(shape))
    for mark in _marks(math.prod(shape)):
        region.bytes[mark] = _value(rank, mark)
    yield region.bytes.reshape(shape)
    region.close()


def _check(want: dict[int, int], shape: tuple[int, ...], handle: _Into) -> None:
    """Fails unless the result has this shape, and is zeros but for these bytes."""
    got = handle.wait()
    assert got.shape == shape
    flat = got.reshape(-1)
    around = {at for mark in want for at in (mark - 1, mark, mark + 1) if 0 <= at < flat.size}
    assert {at: int(flat[at]) for at in around} == {at: want.get(at, 0) for at in around}
    assert handle.region.elsewhere_is_zero()
    handle.region.close()


def _sums(length: int, size: int) -> dict[int, int]:
    return {mark: sum(_value(rank, mark) for rank in range(size)) for mark in _marks(length)}


def _allreduce(rank: int, size: int) -> None:
    length = 2**31 + 5
    want = _sums(length, size)
    with _marked(rank, (length,)) as mine:
        _check(want, (length,), _Into(want, "allreduce", mine, reduce_op=int(ReduceOp.Sum)))


def _reducescatter(rank: int, size: int) -> None:
    length = 2**31 + 5
    with _marked(rank, (length,)) as mine:
        kept = rows_kept(mine, rank, size)
        begin = kept.ctypes.data - mine.ctypes.data
        want = {
            mark - begin: value
            for mark, value in _sums(length, size).items()
            if begin <= mark < begin + kept.size
        }
        _check(want, kept.shape, _Into(want, "reducescatter", mine, reduce_op=int(ReduceOp.Sum)))


def _broadcast(rank: int, size: int) -> None:
    length, root = 2**32 + 5, size - 1
    want = {mark: _value(root, mark) for mark in _marks(length)}
    with _marked(rank, (length,)) as mine:
        _check(want, (length,), _Into(want, "broadcast", mine, root=root))


def _allgather(rank: int, size: int) -> None:
    rows = [2**31 + 3 + r for r in range(size)]
    want = {sum(rows[:r]) + mark: _value(r, mark) for r in range(size) for mark in _marks(rows[r])}
    with _marked(rank, (rows[rank],)) as mine:
        _check(want, (sum(rows),), _Into(want, "allgather", mine))


def _alltoall(rank: int, size: int) -> None:
    """All of it goes to the next rank."""
    shape = (2**20 + 1, 2**12)
    above, below = (rank + 1) % size, (rank - 1) % size
    want = {mark: _value(below, mark) for mark in _marks(math.prod(shape))}
    splits = [shape[0] * (r == above) for r in range(size)]
    with _marked(rank, shape) as mine:
        handle = _Into(want, "alltoall", mine, splits=splits)
        _check(want, shape, handle)
    assert handle.received_splits == [shape[0] * (r == below) for r in range(size)]


_LARGE = {
    "allgather": _allgather,
    "allreduce": _allreduce,
    "alltoall": _alltoall,
    "broadcast": _broadcast,
    "reducescatter": _reducescatter,
}


def _run(kind: str) -> None:
    basics.init()
    _LARGE[kind](basics.rank(), basics.size())


@pytest.mark.parametrize("kind", sorted(_LARGE))
def test_one_rank_alone(kind: str) -> None:
    run_ranks(_run, 1, kind)


@pytest.mark.parametrize("kind", sorted(_LARGE))
def test_through_shared_memory(kind: str) -> None:
    run_ranks(_run, 2, kind, timeout_s=120, env={"HOROVOD_TRANSPORT": "shm"})


# The algorithms are the same; these move more than 4 GiB in one call of the transport, and parts.
@pytest.mark.parametrize("kind", ["allreduce", "broadcast"])
def test_through_sockets(kind: str) -> None:
    run_ranks(_run, 2, kind, timeout_s=120, env={"HOROVOD_TRANSPORT": "tcp"})


def _rows_of_nothing() -> None:
    """Numbers of rows that no 32 bits hold, in tensors that take no memory."""
    basics.init()
    rank, size = basics.rank(), basics.size()
    mine = np.zeros((2**61 - rank, 0), np.uint8)
    assert client.allgather(mine, "g").wait().shape == (size * 2**61 - sum(range(size)), 0)
    handle = client.alltoall(np.zeros(((2**31 - 1) * size, 0), np.uint8), "a", [2**31 - 1] * size)
    assert handle.wait().shape == ((2**31 - 1) * size, 0)
    assert handle.received_splits == [2**31 - 1] * size
    many = np.zeros((2**40 + 1, 0), np.float32)
    assert client.allreduce(many, "r").wait().shape == many.shape
    assert client.broadcast(many, 0, "b").wait().shape == many.shape
    assert client.reducescatter(many, "s").wait().shape[0] == 2**40 // size + (rank == 0)


@pytest.mark.usefixtures("transport")
def test_more_rows_than_32_bits_hold() -> None:
    run_ranks(_rows_of_nothing, 2)


def _said(shape: tuple[int, ...], dtype: str) -> Any:
    """What passes for an array of this shape, which no machine has the memory for."""
    return SimpleNamespace(
        ndim=len(shape), shape=shape, dtype=np.dtype(dtype), ctypes=SimpleNamespace(data=None)
    )


def _refused(kind: str, shapes: list[tuple[int, ...]], dtype: str) -> tuple[int, str, float]:
    """Rank 0 asks for what cannot be, the others do not: each rank's code and text, and a sum."""
    basics.init()
    number, grouped = core.KINDS.index(kind), len(shapes) > 1
    with pytest.raises(core.CoreError) as error:
        if basics.rank() == 0:
            never = core.ALLOCATE(lambda *_: core.OK), core.DONE(lambda *_: None)
            arrays = [(_said(shape, dtype), None) for shape in shapes]
            made = client.request(
                number, "x", arrays, grouped=int(grouped), allocate=never[0], done=never[1]
            )
            identity = ctypes.c_uint64()
            core.check(core.load().hvd_enqueue(ctypes.byref(made), ctypes.byref(identity)))
        ones = np.ones(basics.size(), dtype)
        client.Handle(
            number, [ones] * len(shapes) if grouped else ones, "x", grouped=grouped
        ).wait()
    after = client.allreduce(np.float32(1), "after").wait()
    return error.value.code, str(error.value), float(after)


@pytest.mark.parametrize(
    ("kind", "shapes", "dtype", "words"),
    [
        ("allreduce", [(2**31, 2**30)], "float32", "shape [2147483648, 1073741824] does not fit"),
        # The product is 0 in 64 bits.
        ("allreduce", [(2**32, 2**32)], "uint8", "does not fit in 2^63 bytes"),
        ("allreduce", [(2**62,), (1,)], "uint8", "of each of 2 tensors does not fit in 2^63 bytes"),
        ("reducescatter", [(2**62, 2)], "uint8", "does not fit in 2^63 bytes"),
        ("broadcast", [(2**62,)], "uint16", "does not fit in 2^63 bytes"),
        ("allgather", [(2**62, 1)], "uint8", "of each of 2 ranks does not fit in 2^63 bytes"),
        # The rows of both ranks are 2^63.
        ("allgather", [(2**62, 0)], "uint8", "of each of 2 ranks does not fit in 2^63 bytes"),
        ("allgather", [(2**60, 2), (1,)], "uint8", "of each of 2 tensors of each of 2 ranks"),
        ("alltoall", [(2**32, 2**31)], "uint8", "of each of 2 ranks does not fit in 2^63 bytes"),
        ("alltoall", [(2**32, 0)], "uint8", "at most 2147483647 rows can go to one rank"),
    ],
    ids=str,
)
def test_what_64_bits_cannot_count_is_refused_with_the_limit(
    kind: str, shapes: list[tuple[int, ...]], dtype: str, words: str
) -> None:
    (code, text, after), (other_code, other_text, _) = run_ranks(_refused, 2, kind, shapes, dtype)
    assert code == core.INVALID_ARGUMENT and words in text, text
    assert other_code == core.FAILED_PRECONDITION, other_text
    assert words in other_text and "rank 0" in other_text
    assert after == 2.0
