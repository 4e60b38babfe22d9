"""Bytes between ranks, through the C API: no framework takes part.

The calls block, and return on every rank when its part is done; Ctrl-C works meanwhile.
"""

from __future__ import annotations

from typing import Any

from horovod.common import core
from horovod.common.blocking_call import INT64, UINT8, BlockingCall

__all__ = ["allgather_bytes", "broadcast_bytes"]

_ALLGATHER, _BROADCAST = map(core.KINDS.index, ("allgather", "broadcast"))


def _int64(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _int64s(data: memoryview) -> list[int]:
    return [
        int.from_bytes(data[at : at + 8], "little", signed=True) for at in range(0, len(data), 8)
    ]


def broadcast_bytes(data: bytes, root_rank: int, name: str, process_set: int) -> memoryview:
    """Gives every rank the root's bytes.

    Args:
      data: of any length, the root's alone counts.
      root_rank: whose; a rank of the job.
      name: the same on all ranks.
      process_set: the number of the set of ranks that take part.

    Returns:
      The bytes.

    Raises:
      CoreError: a collective failed.
    """
    fields: dict[str, Any] = {
        "root": root_rank,
        "process_set": process_set,
    }
    is_root = core.load().hvd_rank() == root_rank
    length = BlockingCall(_BROADCAST, f"{name}.size", INT64, _int64(len(data)), **fields).result()
    data = data if is_root else bytes(_int64s(length)[0])
    return BlockingCall(_BROADCAST, f"{name}.data", UINT8, data, **fields).result()


def allgather_bytes(data: bytes, name: str, process_set: int) -> list[memoryview]:
    """Gives every rank all ranks' bytes.

    Args:
      data: of any length.
      name: the same on all ranks.
      process_set: the number of the set of ranks that take part.

    Returns:
      The bytes of each rank, in rank order.

    Raises:
      CoreError: a collective failed.
    """
    fields: dict[str, Any] = {"process_set": process_set}
    sizes = BlockingCall(_ALLGATHER, f"{name}.sizes", INT64, _int64(len(data)), **fields)
    try:
        all_data = BlockingCall(_ALLGATHER, f"{name}.data", UINT8, data, **fields).result()
    except BaseException:
        sizes.end()  # nothing is left behind
        raise
    parts, begin = [], 0
    for size in _int64s(sizes.result()):
        parts.append(all_data[begin : begin + size])
        begin += size
    return parts
