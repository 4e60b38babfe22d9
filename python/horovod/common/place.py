"""Where this process stands in its job, as its launcher's environment says.

Nothing here talks to anyone: `bootstrap.py` does.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Place", "place_from_environment"]

# What launchers that we do not understand yet tell their processes: the number of them.
_FOREIGN_SIZES = (
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MPI_LOCALNRANKS",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_NTASKS",
    "SLURM_STEP_NUM_TASKS",
    "PALS_SIZE",
    "FLUX_JOB_SIZE",
)
# ... or only which of them this is, so there may be more.
_FOREIGN_RANKS = ("PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


@dataclass(frozen=True)
class Place:
    """One process's part of a job.

    Attributes:
      rank: in [0, size).
      size: number of processes.
      local_rank: in [0, local_size), among the processes of this host.
      local_size: number of processes on this host.
      cross_rank: of this host, in [0, cross_size), among those that have this local rank.
      cross_size: number of those hosts.
      hostname: as the launcher names it.
      rendezvous: "host:port" of the server where all meet; empty for a process alone.
      secret: the job's.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    hostname: str = ""
    rendezvous: str = ""
    secret: bytes = b""


def place_from_environment(environ: Mapping[str, str] | None = None) -> Place:
    """Reads the variables that horovodrun sets.

    Args:
      environ: default: the process's own.

    Returns:
      The place; of a process alone when there are no such variables.

    Raises:
      RuntimeError: another launcher has started several processes, and each would believe that it
        is alone; also printed on stderr, since programs catch what init() raises.
      ValueError: the variables contradict each other; the text names variable and value.
    """
    env = os.environ if environ is None else environ
    hostname = env.get("HOROVOD_HOSTNAME") or socket.gethostname()
    if "HOROVOD_RANK" not in env and "HOROVOD_SIZE" not in env:
        _refuse_lone_job(env)
        return Place(hostname=hostname)
    rank, size = _number(env, "HOROVOD_RANK"), _number(env, "HOROVOD_SIZE")
    place = Place(
        rank=rank,
        size=size,
        local_rank=_number(env, "HOROVOD_LOCAL_RANK", rank),
        local_size=_number(env, "HOROVOD_LOCAL_SIZE", size),
        cross_rank=_number(env, "HOROVOD_CROSS_RANK", 0),
        cross_size=_number(env, "HOROVOD_CROSS_SIZE", 1),
        hostname=hostname,
        rendezvous=env.get("HOROVOD_RENDEZVOUS_ADDR", ""),
        secret=_secret(env),
    )
    for what, number, count in (
        ("", place.rank, place.size),
        ("LOCAL_", place.local_rank, place.local_size),
        ("CROSS_", place.cross_rank, place.cross_size),
    ):
        if not 0 <= number < count:
            raise ValueError(
                f"init: HOROVOD_{what}RANK={number} is not in [0, HOROVOD_{what}SIZE={count}); "
                "start the program with horovodrun, which sets these variables"
            )
    if size > 1 and not (place.rendezvous and place.secret):
        raise ValueError(
            f"init: HOROVOD_SIZE={size}, but HOROVOD_RENDEZVOUS_ADDR or HOROVOD_SECRET_KEY is not "
            "set; start the program with horovodrun"
        )
    return place


def _number(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise ValueError(
            f"init: {name} is {text!r}; it must be a whole number, as horovodrun sets it"
        ) from None


def _secret(env: Mapping[str, str]) -> bytes:
    text = env.get("HOROVOD_SECRET_KEY", "")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError("init: HOROVOD_SECRET_KEY is not a string of hex digits") from None


def _refuse_lone_job(env: Mapping[str, str]) -> None:
    """Raises if another launcher seems to have started more processes like this one."""
    sizes = {name: env[name] for name in _FOREIGN_SIZES if env.get(name)}
    several = {name: value for name, value in sizes.items() if value.strip() != "1"}
    # Number unknown: only a size that says 1 makes a rank of 0 a process alone.
    ranks = {name: env[name] for name in _FOREIGN_RANKS if env.get(name)} if not sizes else {}
    found = several or ranks
    if not found:
        return
    text = (
        "init: this process was started by a launcher that horovod does not understand yet ("
        + ", ".join(f"{name}={value}" for name, value in found.items())
        + "), and would train alone beside the others; start the program with "
        "`horovodrun -np N python program.py`, or set HOROVOD_RANK=0 HOROVOD_SIZE=1 if it really "
        "is alone"
    )
    print(f"horovod: {text}", file=sys.stderr, flush=True)
    raise RuntimeError(text)
