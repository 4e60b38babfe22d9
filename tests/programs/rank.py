"""One rank's part of a program, through the C API.  Runs in the processes of job.py."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from typing import Any

from horovod.common import basics, core
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import ReduceOp
from tests.core import client
from tests.programs import values
from tests.programs.draw import from_choices
from tests.programs.judge import Outcome
from tests.programs.model import OK
from tests.programs.program import Call, Id, process_sets, waves

__all__ = ["free_memory", "run", "start"]


def start() -> None:
    """Initialises, with the sets that programs use."""
    size = int(os.environ["HOROVOD_SIZE"])
    sets = [ProcessSet(ranks) for ranks in process_sets(size)]
    basics.init(process_sets=sets)
    ids = [made.process_set_id for made in sets]
    assert ids == list(range(1, len(sets) + 1)), f"programs name the sets by other ids than {ids}"


def run(choices: tuple[int, ...]) -> dict[Id, Outcome]:
    """Runs this rank's part and returns what each call came to.

    Raises:
      TimeoutError: a call did not end.
    """
    program = from_choices(basics.size(), choices)
    outcomes: dict[Id, Outcome] = {}
    for wave in waves(program, basics.rank()):
        handles = []
        for number, call in wave:
            try:
                handles.append((number, enqueue(call)))
            except core.CoreError as error:
                outcomes[number] = Outcome(error.code, str(error))
        for number, handle in handles:
            outcomes[number] = _outcome(handle)
    return outcomes


def free_memory() -> None:
    """Gives back all that is not in use, so that what is can be compared.

    That is what only cycles hold, such as callbacks, and what the allocator keeps.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def enqueue(call: Call) -> client.Handle:
    """Enqueues, and cancels where that is due.

    Raises:
      core.CoreError: it was refused.
    """
    tensors = values.inputs(call, basics.rank())
    what = tensors if call.grouped else next(iter(tensors), None)
    fields: dict[str, Any] = {"process_set": call.process_set}
    if call.kind not in ("barrier", "join"):
        fields |= {"grouped": call.grouped, "prescale": call.prescale, "postscale": call.postscale}
    handle = _MAKE[call.kind](call, what, fields)
    if call.cancelled:
        core.load().hvd_cancel(handle.id)
    return handle


_MAKE: dict[str, Callable[[Call, Any, dict[str, Any]], client.Handle]] = {
    "allreduce": lambda c, x, f: client.allreduce(x, c.name, ReduceOp[c.op], **f),
    "allgather": lambda c, x, f: client.allgather(x, c.name, **f),
    "broadcast": lambda c, x, f: client.broadcast(x, c.root, c.name, **f),
    "alltoall": lambda c, x, f: client.alltoall(x, c.name, c.splits, **f),
    "reducescatter": lambda c, x, f: client.reducescatter(x, c.name, ReduceOp[c.op], **f),
    "barrier": lambda c, x, f: client.barrier(c.name, **f),
    "join": lambda c, x, f: client.join(),
}


def _outcome(handle: client.Handle) -> Outcome:
    try:
        handle.wait()
    except core.CoreError as error:
        return Outcome(error.code, str(error))
    return Outcome(OK, "", [x for x in handle.outputs if x is not None], handle.received_splits)
