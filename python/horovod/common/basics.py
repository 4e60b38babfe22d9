"""Starting, ending, and where this process stands: what every framework's module re-exports."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from horovod.common import bootstrap, core, settings
from horovod.common import process_sets as sets_of_ranks
from horovod.common.exceptions import HorovodInternalError
from horovod.common.place import place_from_environment
from horovod.common.process_sets import ProcessSet, check_ranks
from horovod.common.rendezvous import RendezvousError

__all__ = [
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "failure",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]

# One init() or shutdown() at a time; a signal handler may call shutdown() in the middle of init().
_lock = threading.RLock()
_DYNAMIC, _DYNAMIC_ENV = "dynamic", "HOROVOD_DYNAMIC_PROCESS_SETS"
_are_dynamic = False  # the process sets of this generation; guarded by _lock
_generations_alone = 0  # of a process without a launcher; guarded by _lock


def init(
    comm: Sequence[int] | None = None, process_sets: Sequence[ProcessSet] | str | None = None
) -> None:
    """Joins the job and returns when all its ranks have.

    A second call does nothing while the first one's runtime works; after a failure or `shutdown()`
    it starts a new generation, which all ranks must do.

    Example:
      >>> hvd.init()
      >>> hvd.rank(), hvd.size()  # 2 ranks: (0, 2) and (1, 2)
      (0, 1)

    Args:
      comm: all ranks, as a list; a subset or an MPI communicator is not built yet.
      process_sets: sets of ranks to use beside the global one, the same on every rank; or
        "dynamic": none yet, but `add_process_set` and `remove_process_set` work, as they do with
        HOROVOD_DYNAMIC_PROCESS_SETS=1.

    Raises:
      ValueError: the environment or `process_sets` is wrong; the text names the value.
      RuntimeError: a launcher that is not understood has started several processes.
      HorovodInternalError: the ranks did not come together in HOROVOD_START_TIMEOUT_SECONDS, or
        contradict each other; the text names them.
    """
    global _generations_alone, _are_dynamic
    with _lock:
        sets = _checked_sets(process_sets)
        if is_initialized():
            if failure() is None:
                _refuse_new_sets(sets, process_sets == _DYNAMIC)
                return
            core.shutdown(0)
        place = place_from_environment()
        if comm is not None and check_ranks(comm, "init(comm)") != list(range(place.size)):
            raise NotImplementedError(
                f"init: comm={list(comm)} is not all of the {place.size} ranks; that is not built "
                "yet, use process_sets"
            )
        _generations_alone += 1
        with sets_of_ranks.changes:  # other threads may try to add sets as soon as they can
            try:
                first_set_id = bootstrap.start(
                    place,
                    [item.ranks or [] for item in sets],
                    dynamic_process_sets=process_sets == _DYNAMIC,
                    generation_alone=_generations_alone,
                    least_set_id=sets_of_ranks.least_id(),
                )
            except (core.CoreError, RendezvousError) as error:
                raise HorovodInternalError(f"init: {error}") from None
            sets_of_ranks.begin_generation(place.size, sets, first_set_id)
        _are_dynamic = process_sets == _DYNAMIC or settings.value(_DYNAMIC_ENV) is True


def _checked_sets(process_sets: Any) -> list[ProcessSet]:
    if process_sets == _DYNAMIC:
        return []
    if isinstance(process_sets, str):
        raise ValueError(
            f"init: process_sets={process_sets!r}; give a list of hvd.ProcessSet, or {_DYNAMIC!r}"
        )
    for item in process_sets or ():
        if not (isinstance(item, ProcessSet) and item.ranks):
            raise ValueError(f"init: process_sets holds {item!r}; give hvd.ProcessSet([ranks])")
    return list(process_sets or ())


def _refuse_new_sets(sets: list[ProcessSet], dynamic: bool) -> None:
    """A second init() does nothing, so it must not seem to have added a set, or the leave to."""
    if dynamic and not _are_dynamic:
        raise ValueError(
            f"init: process_sets={_DYNAMIC!r} comes after the first init(), which fixed the sets; "
            "give it there, or call shutdown() first"
        )
    for item in sets:
        if item.process_set_id is None:
            raise ValueError(
                f"init: {item} comes after the first init(); give it there, call shutdown() first, "
                "or use hvd.add_process_set"
            )


def shutdown() -> None:
    """Leaves the job in order.  Does nothing before `init()`.

    What the other ranks then call that needs this one is an error there.

    Example:
      >>> hvd.shutdown()
      >>> hvd.is_initialized()
      False

    Raises:
      HorovodInternalError: called from the completion of a collective.
    """
    with _lock:
        try:
            core.shutdown(0)
        except core.CoreError as error:
            raise HorovodInternalError(f"shutdown: {error}") from error


def is_initialized() -> bool:
    """Returns whether `init()` has succeeded and `shutdown()` was not called since.

    Example:
      >>> hvd.is_initialized()  # after init()
      True
    """
    return bool(core.load().hvd_is_initialized())


def failure() -> str | None:
    """Returns why the runtime can do no more, such as a lost rank; None if it can."""
    code, text = core.failure()
    return None if code == core.OK else text


def _ask(name: str) -> int:
    value = int(getattr(core.load(), f"hvd_{name}")())
    if value < 0:
        raise ValueError(f"{name}: Horovod is not initialized; call hvd.init() first")
    return value


def rank() -> int:
    """Returns this process's number, from 0 to `size() - 1`.

    Example:
      >>> hvd.rank()  # 2 ranks: 0 and 1
      0

    Raises:
      ValueError: `init()` was not called.
    """
    return _ask("rank")


def size() -> int:
    """Returns the number of processes of the job.

    Example:
      >>> hvd.size()  # 2 ranks: 2
      1

    Raises:
      ValueError: `init()` was not called.
    """
    return _ask("size")


def local_rank() -> int:
    """Returns this process's number among those of its host; the GPU to use, for example.

    Example:
      >>> hvd.local_rank()  # 2 ranks on one host: 0 and 1
      0

    Raises:
      ValueError: `init()` was not called.
    """
    return _ask("local_rank")


def local_size() -> int:
    """Returns the number of processes on this host.

    Example:
      >>> hvd.local_size()  # 2 ranks on one host: 2
      1

    Raises:
      ValueError: `init()` was not called.
    """
    return _ask("local_size")


def cross_rank() -> int:
    """Returns this host's number among those that have this local rank.

    Example:
      >>> hvd.cross_rank()  # 2 hosts with one rank each: 0 and 1
      0

    Raises:
      ValueError: `init()` was not called.
    """
    return _ask("cross_rank")


def cross_size() -> int:
    """Returns the number of hosts that have this local rank.

    Example:
      >>> hvd.cross_size()  # 2 hosts with one rank each: 2
      1

    Raises:
      ValueError: `init()` was not called.
    """
    return _ask("cross_size")


def is_homogeneous() -> bool:
    """Returns whether every host has as many processes.

    Example:
      >>> hvd.is_homogeneous()  # a host with 2 ranks and one with 1: False
      True

    Raises:
      ValueError: `init()` was not called.
    """
    return bool(_ask("is_homogeneous"))


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts a timeline: not built yet.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError(f"start_timeline({file_path!r}): the timeline is not built yet")


def stop_timeline() -> None:
    """Stops a timeline: not built yet.

    Raises:
      NotImplementedError: always.
    """
    raise NotImplementedError("stop_timeline(): the timeline is not built yet")


def mpi_threads_supported() -> bool:
    """Returns whether MPI may be called from several threads: False, MPI is not built yet.

    Example:
      >>> hvd.mpi_threads_supported()
      False

    Raises:
      ValueError: `init()` was not called.
    """
    _ask("rank")
    return False


def mpi_enabled() -> bool:
    """Returns whether this job runs over MPI.

    Example:
      >>> hvd.mpi_enabled()
      False
    """
    return False


def mpi_built() -> bool:
    """Returns whether this build can use MPI.

    Example:
      >>> hvd.mpi_built()
      False
    """
    return False


def gloo_enabled() -> bool:
    """Returns whether this job runs over the built-in TCP transport, which stands for Gloo.

    Example:
      >>> hvd.gloo_enabled()
      True
    """
    return True


def gloo_built() -> bool:
    """Returns whether this build has the built-in TCP transport, which stands for Gloo.

    Example:
      >>> hvd.gloo_built()
      True
    """
    return True


def nccl_built() -> int:
    """Returns the version of NCCL that this build can use: 0, none yet.

    Example:
      >>> hvd.nccl_built()
      0
    """
    return 0


def ddl_built() -> bool:
    """Returns whether this build can use IBM's DDL.

    Example:
      >>> hvd.ddl_built()
      False
    """
    return False


def ccl_built() -> bool:
    """Returns whether this build can use oneCCL.

    Example:
      >>> hvd.ccl_built()
      False
    """
    return False


def cuda_built() -> bool:
    """Returns whether this build has CUDA kernels.

    Example:
      >>> hvd.cuda_built()
      False
    """
    return False


def rocm_built() -> bool:
    """Returns whether this build has ROCm kernels.

    Example:
      >>> hvd.rocm_built()
      False
    """
    return False
