"""What is done to a rank, at which moment, and what the others must see then.  Pure."""

from __future__ import annotations

import random
import signal
from dataclasses import dataclass

__all__ = ["FAULTS", "TRANSPORTS", "Fault", "Trial", "draw", "fault_named"]

TRANSPORTS = ("tcp", "shm")  # values of HOROVOD_TRANSPORT

_SIZES = (2, 3, 4)
_INIT_EVERY = 4  # each fourth moment falls into init()
_LATEST_IN_TRAINING_S = 1.5  # after init()
_LATEST_IN_INIT_S = 0.2  # after the victim calls it
_STOPPED_S = (1.0, 3.0)
_REJOINS_EVERY = 3  # of the faults that everybody survives and that may end without a second init()


@dataclass(frozen=True)
class Fault:
    """A row of the table.

    Attributes:
      name: as on the command line.
      title: as in the table.
      signum: what the harness sends to the victim; None: the victim does it to itself.
      victim_status: exit status as subprocess has it; None: the victim survives.
      seen_as: regular expression for the other ranks' error, after the victim's number; None: they
        go on as if nothing had been.
      orderly: whether the error's code is that of an orderly end, not of a loss.
      in_init: whether some of the moments fall into init().
    """

    name: str
    title: str
    signum: int | None = None
    victim_status: int | None = None
    seen_as: str | None = None
    orderly: bool = False
    in_init: bool = True


FAULTS = (
    Fault(
        "kill",
        "`kill -9`",
        signum=signal.SIGKILL,
        victim_status=-signal.SIGKILL,
        seen_as="is lost",
    ),
    Fault("stop", "SIGSTOP, later SIGCONT", signum=signal.SIGSTOP),
    Fault("exit0", "`sys.exit(0)`", victim_status=0, seen_as="ended in order", orderly=True),
    Fault("exit3", "`sys.exit(3)`", victim_status=3, seen_as="exit status 3"),
    Fault("exception", "uncaught exception", victim_status=1, seen_as="exit status 1"),
    Fault("abort", "`os.abort()`", victim_status=-signal.SIGABRT, seen_as="is lost"),
    Fault(
        "caught",
        "caught exception, `shutdown()`, all `init()` again",
        seen_as="ended in order",
        orderly=True,
        in_init=False,
    ),
)


@dataclass(frozen=True)
class Trial:
    """One job and its fault.

    Attributes:
      label: "transport/fault/number", by which the command line finds it again.
      transport: HOROVOD_TRANSPORT.
      fault: what happens to the victim.
      size: number of ranks.
      victim: its rank.
      in_init: whether the moment is counted from the victim's call of init(), not from its end.
      delay_s: the moment.
      stopped_s: until SIGCONT; for SIGSTOP.
      rejoins: whether all ranks call shutdown() and init() again in the same processes.
    """

    label: str
    transport: str
    fault: Fault
    size: int
    victim: int
    in_init: bool
    delay_s: float
    stopped_s: float
    rejoins: bool


def fault_named(name: str) -> Fault:
    """Returns the row.  Raises ValueError if there is none."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    raise ValueError(f"no fault {name!r}; there are: {', '.join(f.name for f in FAULTS)}")


def draw(seed: int, transport: str, fault: Fault, number: int) -> Trial:
    """Draws a trial; the same arguments give the same one, whatever else is drawn."""
    label = f"{transport}/{fault.name}/{number}"
    rng = random.Random(f"{seed}/{label}")
    size = rng.choice(_SIZES)
    in_init = fault.in_init and number % _INIT_EVERY == 0
    return Trial(
        label=label,
        transport=transport,
        fault=fault,
        size=size,
        victim=rng.randrange(size),
        in_init=in_init,
        delay_s=rng.uniform(0, _LATEST_IN_INIT_S if in_init else _LATEST_IN_TRAINING_S),
        stopped_s=rng.uniform(*_STOPPED_S),
        rejoins=fault.victim_status is None
        and (fault.seen_as is not None or number % _REJOINS_EVERY == 1),
    )
