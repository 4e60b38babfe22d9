"""Brings the ranks together: the steps from a place in the job to a running core."""

from __future__ import annotations

import ctypes
import os
import time
import uuid
from collections.abc import Sequence
from typing import Any

import horovod
from horovod.common import core, rendezvous, settings
from horovod.common.place import Place

__all__ = ["start"]

_MOST_ENDPOINT_BYTES = 8192
# Ranks with other values would call other collectives, cut tensors differently, or not speak.
_MUST_AGREE = ("HOROVOD_SPARSE_AUTO_DENSE", "HOROVOD_STAGING_BYTES", "HOROVOD_TRANSPORT")


def start(
    place: Place,
    process_sets: Sequence[Sequence[int]],
    *,
    dynamic_process_sets: bool,
    generation_alone: int,
    least_set_id: int,
) -> int:
    """Starts a generation and returns when all ranks are there.

    Args:
      place: of this process.
      process_sets: ascending ranks of each set, the same on every rank.
      dynamic_process_sets: whether sets may come and go later, whatever the environment says.
      generation_alone: number of this generation for a process alone; others are told theirs.
      least_set_id: the first id of a process set that this process has never used.

    Returns:
      The id of the first of `process_sets`; the others follow.

    Raises:
      RendezvousError, CoreError: the ranks did not come together; the text says who and why.
      ValueError: a knob is wrong, ranks contradict each other, or a process set names a rank that
        does not exist.
    """
    for ranks in process_sets:
        if ranks[-1] >= place.size:
            raise ValueError(f"init: process set {list(ranks)}: there are {place.size} ranks")
    try:
        core.check(core.load().hvd_check_config())
    except core.CoreError as error:
        raise ValueError(f"init: {error}") from error
    settings.read()
    deadline_s = time.monotonic() + float(settings.value("HOROVOD_START_TIMEOUT_SECONDS"))
    member = _member(place, process_sets, least_set_id)
    if place.size == 1:
        meeting = rendezvous.Round(generation_alone, (member,), uuid.uuid4().hex)
    else:
        meeting = _meet(place, member, deadline_s)
    world = _world(place, meeting, process_sets)
    world.first_set_id = max(int(other["least_set_id"]) for other in meeting.members)
    world.dynamic_process_sets = int(dynamic_process_sets)
    world.start_timeout_s = max(1.0, deadline_s - time.monotonic())
    core.check(core.load().hvd_start(ctypes.byref(world)))
    try:
        while (code := core.load().hvd_wait_ready(core.SLICE_S)) == core.DEADLINE_EXCEEDED:
            pass
    except BaseException:  # KeyboardInterrupt; to the others no orderly end
        core.shutdown(1)
        raise
    core.check(code)
    return int(world.first_set_id)


def _meet(place: Place, member: dict[str, Any], deadline_s: float) -> rendezvous.Round:
    """Opens this rank's sockets and meets the other ranks; closes them again when that fails."""
    buffer = ctypes.create_string_buffer(_MOST_ENDPOINT_BYTES)
    loopback_only = int(place.local_size == place.size)
    core.check(core.load().hvd_listen(loopback_only, buffer, len(buffer)))
    try:
        member["endpoints"] = buffer.value.decode().split(",")
        timeout_s = round(deadline_s - time.monotonic(), 1)
        meeting = rendezvous.meet(place.rendezvous, place.secret, member, timeout_s)
        for field in ("process_sets", *_MUST_AGREE):
            _check_agreement(meeting.members, field)
    except BaseException:
        core.shutdown(1)
        raise
    return meeting


def _member(
    place: Place, process_sets: Sequence[Sequence[int]], least_set_id: int
) -> dict[str, Any]:
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
        "least_set_id": least_set_id,
        **{name: settings.value(name) for name in _MUST_AGREE},
    }


def _check_agreement(members: Sequence[Any], field: str) -> None:
    first = members[0][field]
    for rank, member in enumerate(members):
        if member[field] != first:
            raise ValueError(
                f"init: rank {rank} has {field}={member[field]!r}, rank 0 has {first!r}; it must "
                "be the same on all ranks"
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
