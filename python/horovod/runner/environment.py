"""The environment of each rank: the one place where the launcher's variables are named."""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["OWN_VARIABLES", "rank_environment"]

# What `rank_environment` sets, as far as the names are ours.
OWN_VARIABLES = frozenset(
    f"HOROVOD_{name}"
    for name in (
        "RANK",
        "SIZE",
        "LOCAL_RANK",
        "LOCAL_SIZE",
        "CROSS_RANK",
        "CROSS_SIZE",
        "HOSTNAME",
        "RENDEZVOUS_ADDR",
        "SECRET_KEY",
        "LAUNCHER",
        "JOB_ID",
    )
)


def _thread_shares(size: int) -> dict[str, str]:
    """Returns how many threads TensorFlow and OpenMP may use in each of several ranks of a host.

    By itself each would use all cores, and the ranks would take turns.  Ops that wait must not keep
    others from running, so two of them can at any rate.
    """
    if size == 1:
        return {}
    share = max(len(os.sched_getaffinity(0)) // size, 1)
    return {
        "TF_NUM_INTRAOP_THREADS": str(share),
        "TF_NUM_INTEROP_THREADS": str(max(share, 2)),
        "OMP_NUM_THREADS": str(share),
    }


def rank_environment(
    base: Mapping[str, str],
    *,
    rank: int,
    size: int,
    hostname: str,
    rendezvous_address: str,
    secret: bytes,
    job_id: str,
) -> dict[str, str]:
    """Makes the environment of one rank of a job on one host.

    What `base` has wins, but for the names of HOROVOD_, OMPI_ and PMI_ that say where a rank is.

    Args:
      base: what the rank inherits, the knobs included.
      rank: in [0, size); also the local rank.
      size: number of ranks, all on this host.
      hostname: the host as the user named it.
      rendezvous_address: "host:port" of the rendezvous server.
      secret: the job's secret.
      job_id: hex digits by which the job's processes are found again.

    Returns:
      A new mapping.
    """
    place = {
        "HOROVOD_RANK": rank,
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": rank,
        "HOROVOD_LOCAL_SIZE": size,
        "HOROVOD_CROSS_RANK": 0,
        "HOROVOD_CROSS_SIZE": 1,
        # Programs look for these two families before init; HOROVOD_LAUNCHER says that they are
        # ours, so that nobody takes the job for one of MPI's.
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": size,
        "PMI_RANK": rank,
        "PMI_SIZE": size,
    }
    around = base.get("HOROVOD_JOB_ID")  # a job inside a rank of another belongs to both
    return {
        # A pipe makes Python hold its output back, and a killed rank would lose its last words.
        "PYTHONUNBUFFERED": "1",
        **_thread_shares(size),
        **base,
        **{name: str(number) for name, number in place.items()},
        "HOROVOD_HOSTNAME": hostname,
        "HOROVOD_RENDEZVOUS_ADDR": rendezvous_address,
        "HOROVOD_SECRET_KEY": secret.hex(),
        "HOROVOD_LAUNCHER": "horovodrun",
        "HOROVOD_JOB_ID": f"{around}:{job_id}" if around else job_id,
    }
