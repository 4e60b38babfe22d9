"""The collectives of one training step, and whether their results are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from horovod.common import basics
from horovod.common.reduce_ops import ReduceOp
from tests.core.client import Handle
from tests.faults.requests import LastingRequest

__all__ = ["Steps"]

_ALLREDUCE, _ALLGATHER, _BROADCAST = 0, 1, 2

# Floats of each gradient: small ones that fuse, one of a few chunks, one of 4 MiB.
_GRADIENTS = (1, 16, 16, 700, 20_000, 1_000_003)
_ROW = 3  # floats
_BROADCAST_FLOATS = 5_000


class Steps:
    """Makes the steps of one generation; the names are the same in each.

    Args:
      leaves_requests: whether the caller may be interrupted with requests in flight.
    """

    def __init__(self, *, leaves_requests: bool) -> None:
        self._leaves_requests = leaves_requests
        self._lasting: dict[str, LastingRequest] = {}

    def run(self, number: int, *, more: bool) -> bool:
        """Makes one step: all gradients in flight at once, then a gather and a broadcast.

        Args:
          number: from 1.
          more: whether this rank wants another one.

        Returns:
          Whether all ranks do.

        Raises:
          CoreError: as the core ended a request, or refused it.
          AssertionError: a result is wrong.
        """
        rank, size = basics.rank(), basics.size()
        total = size * (size + 1) // 2
        gradients = [
            self._start(
                _ALLREDUCE,
                f"gradient{i}",
                np.full(n, rank + 1, "float32"),
                (n,),
                reduce_op=int(ReduceOp.Sum),
            )
            for i, n in enumerate(_GRADIENTS)
        ]
        wishes = self._start(
            _ALLREDUCE, "wishes", np.float32(more), (), reduce_op=int(ReduceOp.Sum)
        )
        for request in gradients:
            _check((request.wait() == total).all(), "allreduce")
        all_want_more = bool(wishes.wait() == size)

        gathered = self._start(
            _ALLGATHER, "metrics", np.full((rank + 1, _ROW), rank, "float32"), (total, _ROW)
        )
        root = number % size
        shared = self._start(
            _BROADCAST,
            f"state{root}",
            np.full(_BROADCAST_FLOATS, number if rank == root else -1, "float32"),
            (_BROADCAST_FLOATS,),
            root=root,
        )
        rows = np.repeat(np.arange(size), np.arange(size) + 1)[:, None]
        _check((gathered.wait() == rows).all(), "allgather")
        _check((shared.wait() == number).all(), "broadcast")
        return all_want_more

    def _start(
        self, kind: int, name: str, array: Any, output_shape: tuple[int, ...], **fields: Any
    ) -> Any:
        if not self._leaves_requests:
            return Handle(kind, array, name, **fields)
        if name not in self._lasting:
            self._lasting[name] = LastingRequest(kind, array, output_shape, name, **fields)
        request = self._lasting[name]
        request.input[...] = array
        request.start()
        return request


def _check(right: bool, what: str) -> None:
    if not right:
        raise AssertionError(f"the {what}'s result is wrong")
