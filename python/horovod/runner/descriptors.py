"""Whether the launcher may open as many files as a job needs; asked before anything starts."""

from __future__ import annotations

import resource

__all__ = ["descriptor_fault"]

_OF_THE_LAUNCHER = 24  # standard ones, the rendezvous, pipes to itself, one process being started
_OF_A_RANK = 3  # two pipes and its connection to the rendezvous
_OF_COPIES = 2


def descriptor_fault(size: int, *, copies: bool) -> str | None:
    """Says that the limit on open files is too low for a job; None if it is not.

    Args:
      size: number of ranks on this host.
      copies: whether each rank's output is also written to files.
    """
    needed = _OF_THE_LAUNCHER + size * (_OF_A_RANK + (_OF_COPIES if copies else 0))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY or needed <= allowed:
        return None
    return (
        f"-np {size}: needs up to {needed} open files, and this shell allows {allowed}; raise it "
        f"(ulimit -n {needed}) or start fewer ranks"
    )
