"""Brings the ranks together: the steps from a place in the job to a running core."""

from __future__ import annotations

import ctypes
import importlib
import os
import uuid
from collections.abc import Sequence
from typing import Any

import horovod
from horovod.common import core, rendezvous
from horovod.common.place import Place

__all__ = ["start"]

_SLICE_S = 0.1  # so that a signal handler, such as that of Ctrl-C, runs while init() waits
_MOST_ENDPOINT_BYTES = 8192


def start(place: Place, process_sets: Sequence[Sequence[int]], generation_alone: int) -> None:
    """Starts a generation and returns when all ranks are there.

    Args:
      place: of this process.
      process_sets: ascending ranks of each set, the same on every rank.
      generation_alone: number of this generation for a process alone; others are told theirs.

    Raises:
      RendezvousError, CoreError: the ranks did not come together; the text says who and why.
      ValueError: ranks passed different process sets, or one that does not exist.
    """
    for ranks in process_sets:
        if ranks[-1] >= place.size:
            raise ValueError(f"init: process set {list(ranks)}: there are {place.size} ranks")
    member = _member(place, process_sets)
    if place.size == 1:
        meeting = rendezvous.Round(generation_alone, (member,), uuid.uuid4().hex)
    else:
        buffer = ctypes.create_string_buffer(_MOST_ENDPOINT_BYTES)
        loopback_only = int(place.local_size == place.size)
        core.check(core.load().hvd_listen(loopback_only, buffer, len(buffer)))
        member["endpoints"] = buffer.value.decode().split(",")
        meeting = rendezvous.meet(place.rendezvous, place.secret, member, _start_timeout_s())
    _check_process_sets(meeting.members)
    # ctypes keeps the arrays alive as long as the structure.
    core.check(core.load().hvd_start(ctypes.byref(_world(place, meeting, process_sets))))
    try:
        while (code := core.load().hvd_wait_ready(_SLICE_S)) == core.DEADLINE_EXCEEDED:
            pass
    except BaseException:  # KeyboardInterrupt: the next init() starts afresh
        core.load().hvd_shutdown(0)
        raise
    core.check(code)


def _member(place: Place, process_sets: Sequence[Sequence[int]]) -> dict[str, Any]:
    """What this rank tells the others."""
    return {
        "version": horovod.__version__,
        "rank": place.rank,
        "size": place.size,
        "local_rank": place.local_rank,
        "local_size": place.local_size,
        "cross_rank": place.cross_rank,
        "cross_size": place.cross_size,
        "hostname": place.hostname,
        "endpoints": [],
        "host_id": place.hostname,
        "pid": os.getpid(),
        "process_sets": [list(ranks) for ranks in process_sets],
    }


def _start_timeout_s() -> float:
    """Returns the knob, or its default, from the table that the build makes of the core's."""
    knobs = importlib.import_module("horovod.common._knobs")
    knob = next(row for row in knobs.KNOBS if row.id == "start_timeout_s")
    text = os.environ.get(knob.env, "")
    try:
        return float(text or knob.default)
    except ValueError:
        raise ValueError(f"init: {knob.env} is {text!r}; it must be a number of seconds") from None


def _check_process_sets(members: Sequence[Any]) -> None:
    first = members[0]["process_sets"]
    for rank, member in enumerate(members):
        if member["process_sets"] != first:
            raise ValueError(
                f"init: rank {rank} passed process_sets {member['process_sets']}, rank 0 passed "
                f"{first}; they must be the same on all ranks"
            )


def _world(
    place: Place, meeting: rendezvous.Round, process_sets: Sequence[Sequence[int]]
) -> core.World:
    size = place.size
    members = meeting.members
    strings = ctypes.c_char_p * size
    flat = [rank for ranks in process_sets for rank in ranks]
    return core.World(
        rank=place.rank,
        size=size,
        local_rank=place.local_rank,
        local_size=place.local_size,
        cross_rank=place.cross_rank,
        cross_size=place.cross_size,
        homogeneous=int(len({member["local_size"] for member in members}) == 1),
        generation=meeting.generation,
        nonce=meeting.nonce.encode(),
        secret=(ctypes.c_uint8 * len(place.secret))(*place.secret),
        secret_size=len(place.secret),
        hosts=strings(*(str(member["hostname"]).encode() for member in members)),
        endpoints=strings(*(",".join(member["endpoints"]).encode() for member in members)),
        num_process_sets=len(process_sets),
        set_sizes=(ctypes.c_int32 * len(process_sets))(*map(len, process_sets)),
        set_ranks=(ctypes.c_int32 * len(flat))(*flat),
    )
