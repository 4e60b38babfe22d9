"""The rank program's side of torch.distributed with its gloo backend; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tests.bench import rank_values
from tests.bench.cases import Case
from tests.bench.errors import WrongResult
from tests.bench.rank_backend import Work
from tests.bench.rank_place import place

__all__ = ["backend"]

_CHECK_FACTOR = 2
_COLLECTIVES = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")


class _Torch:
    """The backend; see `rank_backend.Backend`."""

    def init(self) -> tuple[int, int]:
        here = place()
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{here.addresses[0]}",
            rank=here.rank,
            world_size=len(here.addresses),
        )
        return dist.get_rank(), dist.get_world_size()

    def first_op(self) -> None:
        total = torch.ones(1)
        dist.all_reduce(total)
        if total.item() != dist.get_world_size():
            raise WrongResult(f"the first op gave {total.item()}, not {dist.get_world_size()}")

    def can(self, case: Case) -> bool:
        # Many gradients go through DistributedDataParallel's buckets, which have no equal here.
        return case.collective in _COLLECTIVES and len(case.shapes) == 1

    def prepare(self, case: Case) -> Work:
        return _TensorWork(case)

    def end(self) -> None:
        dist.destroy_process_group()


def backend() -> _Torch:
    """Returns the backend."""
    return _Torch()


class _TensorWork:
    """One collective; its baseline is the product that makes its input."""

    def __init__(self, case: Case) -> None:
        self._case = case
        (values,) = rank_values.inputs(case, dist.get_rank())
        self._variable = torch.from_numpy(values).to(getattr(torch, case.dtype))

    def runner(self, part: str) -> Callable[[], object]:
        if part == "baseline":
            return lambda: self._variable * 1
        return lambda: self._collective(1)

    def check(self, part: str) -> None:
        if part == "baseline":
            return  # it is no collective
        got = self._collective(_CHECK_FACTOR).float().numpy()
        rank, size = dist.get_rank(), dist.get_world_size()
        rank_values.check(self._case, part, rank, size, [got], _CHECK_FACTOR)

    def close(self) -> None:
        del self._variable

    def _collective(self, factor: int) -> Any:
        fresh, size = self._variable * factor, dist.get_world_size()
        if self._case.collective == "allreduce":
            dist.all_reduce(fresh)
            return fresh
        if self._case.collective == "broadcast":
            dist.broadcast(fresh, 0)
            return fresh
        if self._case.collective == "allgather":
            gathered = torch.empty(size * fresh.numel(), dtype=fresh.dtype)
            dist.all_gather_into_tensor(gathered, fresh)
            return gathered
        if self._case.collective == "alltoall":
            received = torch.empty_like(fresh)
            dist.all_to_all_single(received, fresh)
            return received
        share = torch.empty(fresh.numel() // size, dtype=fresh.dtype)
        dist.reduce_scatter_tensor(share, fresh)
        return share
