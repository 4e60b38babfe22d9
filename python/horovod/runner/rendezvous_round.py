"""Who has come to a round of the rendezvous, who is missing, and what contradicts what.

Pure: no sockets and no time, so every rule can be tested by a table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from horovod.common.rendezvous import MOST_RANKS, name_ranks
from horovod.runner.report import list_statuses

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
    if member["size"] > MOST_RANKS:
        return (
            f"rendezvous: size {member['size']} is more than the {MOST_RANKS} ranks a job may have"
        )
    if not all(isinstance(endpoint, str) for endpoint in member["endpoints"]):
        return "rendezvous: field 'endpoints' must hold strings"
    return None


class Gathering:
    """The members of the round that is under way, and which ranks can come no more.

    Args:
      size: the number of ranks; None lets the first member of the round decide.
    """

    def __init__(self, size: int | None = None) -> None:
        self._size = size
        self._members: dict[int, Member] = {}
        self._ended: dict[int, int] = {}  # status, as Python's subprocess has it, by rank
        self._met: set[int] = set()  # ranks of earlier rounds
        self._told: set[int] = set()  # ranks whose last round failed

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
        self._ended.pop(member["rank"], None)  # it was started again
        self._told.discard(member["rank"])

    def end(self, rank: int, status: int) -> None:
        """Notes that the process of `rank` has ended and will come to no round."""
        self._ended[rank] = status

    def hopeless(self) -> str | None:
        """Says which missing ranks can come no more, and what to do; None if all may yet come."""
        if not self._ended:
            return None
        gone = {rank: self._ended[rank] for rank in self.missing() if rank in self._ended}
        if not gone:
            return None
        # Who ended when told that the round failed is not the cause.
        gone = {rank: status for rank, status in gone.items() if rank not in self._told} or gone
        who = name_ranks(list(gone))
        when = "after an earlier init()" if self._met.issuperset(gone) else "before init()"
        return (
            f"rendezvous: {who} ended {when} and cannot come ({list_statuses(gone)}); "
            f"{name_ranks(sorted(self._members))} waited.  Every rank must call init() as often "
            f"as the others; see what {who} printed last"
        )

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

    def fail(self) -> None:
        """Forgets the members of a round that failed."""
        self._told.update(self._members)
        self._members.clear()

    def finish(self) -> list[Member]:
        """Returns the members of the complete round, in rank order, and starts the next."""
        members = self.members()
        self._met.update(self._members)
        self._members.clear()
        return members


def _describe(member: Member) -> str:
    return f"rank {member['rank']} ({member['hostname']}, pid {member['pid']})"
