"""Process sets: groups of ranks that run collectives among themselves."""

from __future__ import annotations

import ctypes
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any

from horovod.common import core
from horovod.common.blocking_call import INT32, BlockingCall
from horovod.common.exceptions import HorovodInternalError

__all__ = [
    "ProcessSet",
    "add_process_set",
    "begin_generation",
    "changes",
    "check_ranks",
    "global_process_set",
    "least_id",
    "remove_process_set",
]

_ADD, _REMOVE = map(core.KINDS.index, ("add_process_set", "remove_process_set"))


class ProcessSet:
    """Some ranks of the job.

    It is known to the ranks once it was given to `hvd.init(process_sets=[...])` or to
    `hvd.add_process_set`; until then `process_set_id` is None.

    Example:
      >>> even = hvd.ProcessSet([0])  # of 4 ranks: [0, 2]
      >>> hvd.init(process_sets=[even])
      >>> even.included(), even.rank(), even.size()  # of 4 ranks, on rank 2: (True, 1, 2)
      (True, 0, 1)

    Args:
      ranks_or_comm: the ranks, each once, in any order.

    Raises:
      ValueError: no ranks, one that is no whole number, or a rank given twice or below 0.
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
        return self._size_and_rank()[0]

    def rank(self) -> int:
        """Returns this process's rank in the set, counted from 0.

        Raises:
          ValueError: this process is not in the set, the set is not known to the ranks, or
            `init()` was not called.
        """
        rank = self._size_and_rank()[1]
        if rank < 0:
            raise ValueError(f"{self}: rank {core.load().hvd_rank()} is not in it")
        return rank

    def included(self) -> bool:
        """Returns whether this process is in the set.

        Raises:
          ValueError: the set is not known to the ranks, or `init()` was not called.
        """
        return self._size_and_rank()[1] >= 0

    def _size_and_rank(self) -> tuple[int, int]:
        """Returns how many ranks it has and this one's place among them, or -1."""
        if not core.load().hvd_is_initialized():
            raise ValueError(f"{self}: Horovod is not initialized; call hvd.init() first")
        number = self.process_set_id  # once: another thread may remove the set
        size = -1 if number is None else int(core.load().hvd_process_set_size(number))
        if size < 0:
            raise ValueError(
                f"{self}: not known to the ranks; pass it to hvd.init(process_sets=[...]) or to "
                "hvd.add_process_set()"
            )
        return size, int(core.load().hvd_process_set_rank(number))

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
      ValueError: no ranks, one that is no whole number, or a rank given twice or below 0.
      NotImplementedError: not a sequence of numbers, such as an MPI communicator.
    """
    if isinstance(ranks, (str, bytes)) or not hasattr(ranks, "__iter__"):
        raise NotImplementedError(
            f"{who}: {ranks!r} is not a list of ranks; MPI communicators are not built yet"
        )
    given = list(ranks)
    try:
        listed = sorted(operator.index(rank) for rank in given)
    except TypeError:
        raise ValueError(f"{who}: ranks {given} must be whole numbers") from None
    most = 2**31 - 1  # the core's numbers have 32 bits
    if not listed or listed[0] < 0 or listed[-1] > most or len(set(listed)) != len(listed):
        raise ValueError(f"{who}: ranks {given} must be one or more, from 0 up, each once")
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


# Ranks must change the sets in the same order, so a rank makes one change at a time; init() is one.
changes = threading.RLock()
_known: list[ProcessSet] = []  # beside the global one; guarded by changes
_least_id = 1  # ids are baked into graphs, so none is used twice; guarded by changes


def least_id() -> int:
    """Returns the least id of a set that this process has never used."""
    with changes:
        return _least_id


def begin_generation(size: int, sets: Sequence[ProcessSet], first_id: int) -> None:
    """Makes sets known, and those of the generation before unknown.

    Args:
      size: of the job.
      sets: beside the global one.
      first_id: of the first of them, at least `least_id()`; the others follow.
    """
    with changes:
        for item in _known:
            item.process_set_id = None
        global_process_set.ranks = list(range(size))
        _known.clear()
        for number, item in enumerate(sets, start=first_id):
            _make_known(item, number)


def _make_known(process_set: ProcessSet, number: int) -> None:
    global _least_id
    process_set.process_set_id = number
    _known.append(process_set)
    _least_id = max(_least_id, number + 1)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Adds a set of ranks while the job runs.

    All ranks of the job call this with the same ranks, those outside the set too, and in the same
    order as other changes of the sets.  It needs `hvd.init(process_sets="dynamic")` or
    HOROVOD_DYNAMIC_PROCESS_SETS=1.

    Args:
      process_set: the set, or its ranks.

    Returns:
      The set; its `process_set_id` is now a number that no other set had.

    Raises:
      ValueError: there is such a set already (`init` takes it, since a set by a rule may happen to
        be that of all ranks); a rank that does not exist or is given twice; the ranks of the job
        gave different sets, or one of them could not take part; `init()` was not called, or fixed
        the sets.
      NotImplementedError: an MPI communicator.
      HorovodInternalError: a rank was lost or left.

    Example:
      >>> hvd.init(process_sets="dynamic")
      >>> if hvd.size() > 1:  # of one rank there is no set but that of all
      ...     even = hvd.add_process_set(range(0, hvd.size(), 2))
    """
    with changes:
        try:
            made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
            if made.process_set_id is not None:
                raise ValueError(f"add_process_set: {made} is a set of this job already")
        except Exception as error:
            _refuse(_ADD, f"add_process_set: {error}")
            raise
        ranks = made.ranks or []
        fields = {"ranks": (ctypes.c_int32 * len(ranks))(*ranks), "num_ranks": len(ranks)}
        _change(_ADD, lambda number: _make_known(made, number), **fields)
    return made


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a set of ranks while the job runs.

    All ranks of the job call this, those outside the set too, and in the same order as other
    changes of the sets.  What is still waiting on the set fails on each of its ranks with
    `tf.errors.FailedPreconditionError`; what is running ends first.

    Args:
      process_set: a set that `hvd.init` or `add_process_set` made known; its `process_set_id`
        becomes None.

    Returns:
      True.

    Raises:
      ValueError: the set is the global one, or not known to the ranks; the ranks of the job gave
        different sets, or one of them could not take part; `init()` was not called, or fixed the
        sets.
      HorovodInternalError: a rank was lost or left.

    Example:
      >>> hvd.init(process_sets="dynamic")
      >>> if hvd.size() > 1:  # of one rank there is no set but that of all
      ...     even = hvd.add_process_set(range(0, hvd.size(), 2))
      ...     assert hvd.remove_process_set(even)
    """
    with changes:
        number = process_set.process_set_id if isinstance(process_set, ProcessSet) else None
        if number is None:
            text = f"remove_process_set: {process_set} is not known to the ranks"
            _refuse(_REMOVE, text)
            raise ValueError(text)
        _change(_REMOVE, lambda _: _forget(process_set), root=number)
    return True


def _change(kind: int, then: Callable[[int], None], **fields: Any) -> None:
    """Makes a change together with all other ranks, and `then` what follows, given the set's id."""
    try:
        call = BlockingCall(kind, "", INT32, bytes(4), scalar=True, **fields)
        try:
            call.result()
        finally:  # also where Ctrl-C came, but the change was made
            if call.has_run:
                then(int.from_bytes(call.output, "little", signed=True))
    except core.CoreError as error:
        if error.code == core.NOT_INITIALIZED:
            raise ValueError(f"{core.KINDS[kind]}: Horovod is {error}") from None
        if error.code in (core.INVALID_ARGUMENT, core.FAILED_PRECONDITION):
            raise ValueError(str(error)) from None
        raise HorovodInternalError(str(error)) from None


def _forget(process_set: ProcessSet) -> None:
    process_set.process_set_id = None
    _known[:] = [other for other in _known if other is not process_set]


def _refuse(kind: int, reason: str) -> None:
    """Tells the other ranks that this one cannot make the change."""
    core.load().hvd_refuse(ctypes.byref(core.Request(name=b"", kind=kind)), reason.encode())
