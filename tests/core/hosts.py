"""Ranks of one machine that say they are on several hosts."""

from __future__ import annotations

import os

from horovod.common import basics
from horovod.common.process_sets import ProcessSet

__all__ = ["init"]


def init(per_host: int, process_sets: list[ProcessSet] | str | None = None) -> int:
    """Joins the job as one of `per_host` ranks of a host; returns the rank."""
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    os.environ["HOROVOD_HOSTNAME"] = f"host{rank // per_host}"
    os.environ["HOROVOD_LOCAL_RANK"] = str(rank % per_host)
    os.environ["HOROVOD_LOCAL_SIZE"] = str(per_host)
    os.environ["HOROVOD_CROSS_RANK"] = str(rank // per_host)
    os.environ["HOROVOD_CROSS_SIZE"] = str(size // per_host)
    basics.init(process_sets=process_sets)
    return rank
