"""A rank of a trial: collectives in an endless loop, as training is, beside a forked data loader.

Argument: a RankSpec as JSON.  Events go to the report, one JSON object a line, each with the
moment (CLOCK_MONOTONIC, the same clock in all processes of a machine):

  starting     is about to call init() for the first time; the descriptors that it has
  initialized  init() has returned; the loader's pid
  step         a step of the loop is over
  fault        the victim is about to do what the trial says
  raised       a collective or init() raised; code and text
  left         shutdown() is over; descriptors and mappings that remain, here and in the loader
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from horovod.common import basics, core
from horovod.common.exceptions import HorovodInternalError
from tests.faults.remains import descriptors, remains, remains_of_child
from tests.faults.steps import Steps

__all__ = ["FAULT_SIGNAL", "RankSpec", "STEPS_AFTER"]

FAULT_SIGNAL = signal.SIGUSR2
STEPS_AFTER = 5  # steps that show that a job goes on

_LOADER_LIVES_S = 120.0  # for the case that nobody ends it


@dataclass(frozen=True)
class RankSpec:
    """What a rank needs to know of its trial.

    Attributes:
      report: file for the events.
      finish: once this file exists, all ranks leave the loop after the same step.
      fault: name of what the victim does to itself at FAULT_SIGNAL; "" on the other ranks.
      rejoins: whether to call init() once more after the loop has ended.
      gives_up_s: seconds after which the process ends, for the case that its parent has died.
    """

    report: str
    finish: str
    fault: str
    rejoins: bool
    gives_up_s: float


class Planned(Exception):
    """The victim's exception."""


def _main(spec: RankSpec) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    faulthandler.dump_traceback_later(spec.gives_up_s, exit=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _Rank(spec).run()


class _Rank:
    def __init__(self, spec: RankSpec) -> None:
        self._spec = spec
        self._report_fd = os.open(spec.report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._loader = 0  # pid
        signal.signal(FAULT_SIGNAL, self._on_fault_signal)

    def run(self) -> None:
        core.load()
        before = descriptors("self")
        self._tell("starting", descriptors=before)
        for generation in range(1 + self._spec.rejoins):
            try:
                basics.init()
                self._fork_loader()
                self._tell("initialized", generation=generation, loader=self._loader)
                self._train(Steps(leaves_requests=bool(self._spec.fault)), generation)
            except Planned:
                if self._spec.fault != "caught":
                    raise
            except (core.CoreError, HorovodInternalError) as error:
                at_s = time.monotonic()
                code = error.code if isinstance(error, core.CoreError) else None
                self._tell("raised", at_s, code=code, text=str(error), generation=generation)
            basics.shutdown()
            left = [f"rank: {what}" for what in remains("self", before)]
            if self._loader:
                left += [f"loader: {what}" for what in remains_of_child(self._loader, before)]
                self._end_loader()
            self._tell("left", remains=left, generation=generation)

    def _train(self, steps: Steps, generation: int) -> None:
        number = 0
        more = True
        while more:
            number += 1
            # A second generation is there to show that it works.
            ready = number >= STEPS_AFTER if generation else os.path.exists(self._spec.finish)
            more = steps.run(number, more=not ready)
            self._tell("step", generation=generation)

    def _fork_loader(self) -> None:
        self._loader = os.fork()
        if self._loader:
            return
        try:
            signal.signal(FAULT_SIGNAL, signal.SIG_IGN)
            end_s = time.monotonic() + _LOADER_LIVES_S
            while time.monotonic() < end_s:
                sum(range(20_000))
                time.sleep(0.05)
        finally:
            os._exit(0)

    def _end_loader(self) -> None:
        os.kill(self._loader, signal.SIGKILL)
        os.waitpid(self._loader, 0)
        self._loader = 0

    def _on_fault_signal(self, signum: int, frame: FrameType | None) -> NoReturn:
        self._tell("fault")
        if self._spec.fault == "exit0":
            sys.exit(0)
        if self._spec.fault == "exit3":
            sys.exit(3)
        if self._spec.fault == "abort":
            os.abort()
        raise Planned(f"planned: {self._spec.fault}")

    def _tell(self, event: str, at_s: float | None = None, **fields: Any) -> None:
        at_s = time.monotonic() if at_s is None else at_s
        line = json.dumps({"event": event, "at_s": at_s, **fields}) + "\n"
        os.write(self._report_fd, line.encode())


if __name__ == "__main__":
    _main(RankSpec(**json.loads(sys.argv[1])))
