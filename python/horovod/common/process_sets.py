"""Process sets: groups of ranks that run collectives among themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from horovod.common import core

__all__ = [
    "ProcessSet",
    "add_process_set",
    "check_ranks",
    "global_process_set",
    "remove_process_set",
]


class ProcessSet:
    """Some ranks of the job.

    It is known to the ranks once it was given to `hvd.init(process_sets=[...])`; until then
    `process_set_id` is None.

    Args:
      ranks_or_comm: the ranks, each once, in any order.

    Raises:
      ValueError: no ranks, or a rank given twice or below 0.
      NotImplementedError: an MPI communicator; not built yet.
    """

    process_set_id: int | None
    ranks: list[int] | None

    def __init__(self, ranks_or_comm: Sequence[int]) -> None:
        self.process_set_id = None
        self.ranks = check_ranks(ranks_or_comm, "ProcessSet")

    def size(self) -> int:
        """Returns the number of ranks.

        Raises:
          ValueError: the set is not known to the ranks, or `init()` was not called.
        """
        return self._ask(core.load().hvd_process_set_size)

    def rank(self) -> int:
        """Returns this process's rank in the set, counted from 0.

        Raises:
          ValueError: this process is not in the set, the set is not known to the ranks, or
            `init()` was not called.
        """
        self.size()
        rank: int = core.load().hvd_process_set_rank(self.process_set_id)
        if rank < 0:
            raise ValueError(f"{self}: rank {core.load().hvd_rank()} is not in it")
        return rank

    def included(self) -> bool:
        """Returns whether this process is in the set.

        Raises:
          ValueError: the set is not known to the ranks, or `init()` was not called.
        """
        self.size()
        return bool(core.load().hvd_process_set_rank(self.process_set_id) >= 0)

    def _ask(self, question: Any) -> int:
        if not core.load().hvd_is_initialized():
            raise ValueError(f"{self}: Horovod is not initialized; call hvd.init() first")
        answer = -1 if self.process_set_id is None else int(question(self.process_set_id))
        if answer < 0:
            raise ValueError(f"{self}: not known to the ranks; pass it to hvd.init(process_sets=)")
        return answer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProcessSet):
            return NotImplemented
        return self.ranks == other.ranks

    def __hash__(self) -> int:
        return hash(tuple(self.ranks or ()))

    def __str__(self) -> str:
        return f"ProcessSet(id={self.process_set_id}, ranks={self.ranks})"

    __repr__ = __str__


def check_ranks(ranks: Any, who: str) -> list[int]:
    """Returns `ranks` as an ascending list.

    Args:
      ranks: whole numbers.
      who: begins the error's text.

    Raises:
      ValueError: no ranks, or a rank given twice or below 0.
      NotImplementedError: not a sequence of numbers, such as an MPI communicator.
    """
    if isinstance(ranks, (str, bytes)) or not hasattr(ranks, "__iter__"):
        raise NotImplementedError(
            f"{who}: {ranks!r} is not a list of ranks; MPI communicators are not built yet"
        )
    listed = sorted(int(rank) for rank in ranks)
    if not listed or listed[0] < 0 or len(set(listed)) != len(listed):
        raise ValueError(f"{who}: ranks {list(ranks)} must be one or more, from 0 up, each once")
    return listed


class _GlobalProcessSet(ProcessSet):
    """All ranks; always there, under the number 0."""

    def __init__(self) -> None:
        self.process_set_id = 0
        self.ranks = None  # unknown before init()

    __hash__ = ProcessSet.__hash__

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, ProcessSet) and other.process_set_id == 0)


global_process_set: ProcessSet = _GlobalProcessSet()


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set while running: not built yet.

    Raises:
      NotImplementedError: always; give the set to `hvd.init(process_sets=[...])`.
    """
    raise NotImplementedError(
        f"add_process_set({process_set}): sets that change while running are not built yet; give "
        "them to hvd.init(process_sets=[...])"
    )


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set while running: not built yet.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError(
        f"remove_process_set({process_set}): sets that change while running are not built yet"
    )
