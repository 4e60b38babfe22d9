"""Where this process stands in its job, as its launcher's environment says.

Nothing here talks to anyone: `bootstrap.py` does.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from horovod.common.rendezvous import MOST_RANKS, parse_addresses

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
_HOSTNAME = re.compile(r"[\w.:%-]{1,255}", re.ASCII)


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
    if env.get("HOROVOD_HOSTNAME") and not _HOSTNAME.fullmatch(hostname):
        raise ValueError(
            f"init: HOROVOD_HOSTNAME is {hostname!r:.300}; it must be a host's name, of at most "
            "255 letters, digits and -._:%"
        )
    if "HOROVOD_RANK" not in env and "HOROVOD_SIZE" not in env:
        _refuse_lone_job(env)
        return Place(hostname=hostname)
    rank, size = _pair(env, "", None)
    local_rank, local_size = _pair(env, "LOCAL_", (rank, size))
    cross_rank, cross_size = _pair(env, "CROSS_", (0, 1))
    place = Place(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        cross_rank=cross_rank,
        cross_size=cross_size,
        hostname=hostname,
        rendezvous=env.get("HOROVOD_RENDEZVOUS_ADDR", ""),
        secret=_secret(env),
    )
    if size > MOST_RANKS:
        raise ValueError(
            f"init: HOROVOD_SIZE={size} is more than the {MOST_RANKS} ranks there may be"
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
    if size > 1:
        try:
            parse_addresses(place.rendezvous)
        except ValueError as error:
            raise ValueError(f"init: HOROVOD_RENDEZVOUS_ADDR: {error}") from None
    return place


def _pair(env: Mapping[str, str], what: str, default: tuple[int, int] | None) -> tuple[int, int]:
    """Reads a rank and its size: both are set, or neither."""
    names = (f"HOROVOD_{what}RANK", f"HOROVOD_{what}SIZE")
    missing = [name for name in names if name not in env]
    if missing and (len(missing) == 1 or default is None):
        other = names[1 - names.index(missing[0])]
        raise ValueError(
            f"init: {missing[0]} is not set, but {other}={env.get(other)} is; start the program "
            "with horovodrun, which sets both"
        )
    if missing:
        assert default is not None
        return default
    return _number(env, names[0]), _number(env, names[1])


def _number(env: Mapping[str, str], name: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", env[name]):
        raise ValueError(
            f"init: {name} is {env[name]!r:.100}; it must be a whole number, as horovodrun sets it"
        )
    return int(env[name])


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
