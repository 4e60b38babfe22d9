"""Who has come to a round of the rendezvous, who is missing, and what contradicts what.

Pure: no sockets and no time, so every rule can be tested by a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Gathering", "Member", "malformed"]

Member = Mapping[str, Any]

_FIELDS: dict[str, type] = {
    "version": str,
    "rank": int,
    "size": int,
    "local_rank": int,
    "local_size": int,
    "cross_rank": int,
    "cross_size": int,
    "hostname": str,
    "endpoints": list,
    "host_id": str,
    "pid": int,
}


def malformed(member: Member) -> str | None:
    """Says which field of `member` is absent or of the wrong type; None if all are well."""
    for name, kind in _FIELDS.items():
        value = member.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return f"rendezvous: field {name!r} must be {kind.__name__}, not {value!r:.80}"
    if not all(isinstance(endpoint, str) for endpoint in member["endpoints"]):
        return "rendezvous: field 'endpoints' must hold strings"
    return None


class Gathering:
    """The members of the round that is under way.

    Args:
      size: the number of ranks; None lets the first member of the round decide.
    """

    def __init__(self, size: int | None = None) -> None:
        self._size = size
        self._members: dict[int, Member] = {}

    def conflict(self, member: Member) -> str | None:
        """Says why `member` cannot be of one job with those already here; None if it can.

        Names both sides and both values.  The round cannot complete as it stands, so
        the text is for everyone who waits.
        """
        rank, size = member["rank"], member["size"]
        who = _describe(member)
        if self._size is not None and size != self._size:
            return (
                f"rendezvous: {who} has size {size}, the launcher started {self._size} ranks; "
                "all ranks must be of one job"
            )
        for other in self._members.values():
            if other["size"] != size:
                return (
                    f"rendezvous: {who} has size {size}, {_describe(other)} has size "
                    f"{other['size']}; all ranks must be of one job"
                )
            if other["version"] != member["version"]:
                return (
                    f"rendezvous: {who} runs version {member['version']}, {_describe(other)} runs "
                    f"version {other['version']}; install one version everywhere"
                )
        if not 0 <= rank < size:
            return f"rendezvous: {who}: the rank must be at least 0 and below the size, {size}"
        if rank in self._members:
            return (
                f"rendezvous: two living processes are rank {rank}: {who} and "
                f"{_describe(self._members[rank])}; each rank must be one process "
                "(does a program start another one that calls init()?)"
            )
        return None

    def add(self, member: Member) -> None:
        """Takes `member` into the round.  REQUIRES: conflict(member) is None."""
        self._members[member["rank"]] = member

    def remove(self, member: Member) -> None:
        """Forgets `member`, which went away before the round was complete."""
        if self._members.get(member["rank"]) is member:
            del self._members[member["rank"]]

    def missing(self) -> list[int]:
        """Returns the ranks that have not come, in order; empty when nobody has yet."""
        if not self._members:
            return []
        size = next(iter(self._members.values()))["size"]
        return [rank for rank in range(size) if rank not in self._members]

    def complete(self) -> bool:
        """Tells whether every rank of the round is here."""
        return bool(self._members) and not self.missing()

    def members(self) -> list[Member]:
        """Returns those who are here, in rank order."""
        return [self._members[rank] for rank in sorted(self._members)]

    def clear(self) -> None:
        """Starts the next round."""
        self._members.clear()


def _describe(member: Member) -> str:
    return f"rank {member['rank']} ({member['hostname']}, pid {member['pid']})"
