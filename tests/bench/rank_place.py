"""What a rank is told of the others before it joins them: set by the job, read by the rank.

Those that a launcher starts learn their rank from it, and are told only how many there are.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Place", "SIZE", "free_addresses", "place", "variables"]

SIZE = "BENCH_SIZE"
_RANK, _ADDRESSES = "BENCH_RANK", "BENCH_ADDRESSES"


@dataclass(frozen=True)
class Place:
    """A rank among others.

    Attributes:
      rank: in [0, len(addresses)).
      addresses: "host:port" where each rank may listen.
    """

    rank: int
    addresses: list[str]


def free_addresses(count: int) -> list[str]:
    """Returns addresses of this host that are free now; nothing keeps them so."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return ["{}:{}".format(*listener.getsockname()) for listener in sockets]


def variables(rank: int, addresses: Sequence[str]) -> dict[str, str]:
    """Returns what `place()` finds in the environment of that rank."""
    return {_RANK: str(rank), _ADDRESSES: ",".join(addresses)}


def place() -> Place:
    """Returns where this process stands.

    Raises:
      KeyError: the job has not started it.
    """
    return Place(int(os.environ[_RANK]), os.environ[_ADDRESSES].split(","))
