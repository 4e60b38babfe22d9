"""A system at work: N ranks that were started once, and do one measurement after the other.

Threads: one uses a job.  Errors: BenchError, with the end of what the ranks have printed.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

from tests.bench import processes
from tests.bench.cases import Case
from tests.bench.crew import Crew
from tests.bench.errors import BenchError, WrongResult
from tests.bench.rank_backend import PARTS
from tests.bench.systems import System

__all__ = ["BenchError", "Job", "WrongResult"]

_SLACK_S = 120.0  # beyond what a measurement is planned to take
_FIRST_ITERATIONS = 3
_WARM_SHARE = 0.2  # of the seconds of a turn; after a stop the caches are cold
_LEAST_ITERATIONS, _MOST_ITERATIONS = 3, 100_000


class Job:
    """Starts all ranks of a system, and returns when all have done their first op.

    Args:
      system: what to start.
      size: number of ranks, >= 1.
      folder: for its output; it must exist.

    Attributes:
      first_op_s: seconds from the command to the end of the first op, of the slowest rank.
      init_s: of which joining the other ranks took, of the slowest rank.

    Raises:
      BenchError: a rank died, or is not there in time.  Nothing is left of the job then.
    """

    first_op_s: float
    init_s: float

    def __init__(self, system: System, size: int, folder: Path) -> None:
        self._system = system
        self._crew = Crew(system, size, folder)
        self._paused = False
        self._prepared = ""  # the name of a case
        self._can: dict[str, bool] = {}
        self._pace_s: dict[tuple[str, str], float] = {}  # mean seconds per iteration, so far
        self.first_op_s = max(rank["first_op_s"] for rank in self._crew.started)
        self.init_s = max(rank["init_s"] for rank in self._crew.started)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def usable(self) -> bool:
        """Whether it can go on: after a wrong result yes, without one of its ranks not."""
        return not self._crew.broken

    @property
    def pids(self) -> list[int]:
        """The process ids of the ranks, in rank order."""
        return list(self._crew.pids)

    def can(self, case: Case) -> bool:
        """Whether the system has what the case needs.

        Raises:
          BenchError: a rank died or does not answer.
        """
        if case.name not in self._can:
            self._can[case.name] = all(self._ask("can", case=case.name))
        return self._can[case.name]

    def measure(self, case: Case, part: str, seconds: float) -> float:
        """Runs one part of a case for about `seconds`, its results checked before and after.

        Args:
          case: one that it `can`.
          part: "gross": over all ranks; "baseline": without an exchange.
          seconds: of timed iterations; at least three are made.

        Returns:
          Seconds per iteration: the median of each rank, of which the slowest rank's.

        Raises:
          WrongResult: of the case; figures taken before may be wrong as well.
          BenchError: a rank failed, died or does not answer.
        """
        if part not in PARTS:
            raise ValueError(f"no part {part!r} of a case; there are: {', '.join(PARTS)}")
        if self._prepared != case.name:
            self._prepared = ""
            self._ask("prepare", case=case.name)
            self._prepared = case.name
        self._ask("check", part=part)
        if (case.name, part) not in self._pace_s:
            for _ in range(2):  # only the second says something of the pace
                self._run(part, _FIRST_ITERATIONS)
        self._run(part, self._iterations(part, _WARM_SHARE * seconds))
        measured_s = self._run(part, self._iterations(part, seconds))
        self._ask("check", part=part)
        return measured_s

    def idle(self, seconds: float) -> tuple[float, float]:
        """Watches the ranks do nothing for `seconds`.

        Returns:
          CPU seconds and context switches of one rank, all its threads: the mean over the ranks.

        Raises:
          BenchError: a rank died.
        """
        self._must_not_be_paused()
        before = [self._look(processes.cpu_and_switches, pid) for pid in self._crew.pids]
        time.sleep(seconds)
        after = [self._look(processes.cpu_and_switches, pid) for pid in self._crew.pids]
        cpu_s = statistics.fmean(b[0] - a[0] for a, b in zip(before, after))
        switches = statistics.fmean(b[1] - a[1] for a, b in zip(before, after))
        return cpu_s, switches

    def memory(self) -> dict[str, int]:
        """Returns bytes of private memory, of the largest rank.

        Private is what no file holds: its heap, and its part of the memory that ranks share.
        Libraries are left out, since their part depends on who else has loaded them.

        Returns:
          "added by init": by joining the others and the first op; "now".

        Raises:
          BenchError: a rank died, or this kernel does not say.
        """
        added = []
        for rank in self._crew.started:
            before_bytes, after_bytes = rank["memory_bytes"]
            if before_bytes is None or after_bytes is None:
                raise BenchError(f"{self._system.name}: {processes.SMAPS} cannot be read here")
            added.append(after_bytes - before_bytes)
        now = max(self._look(processes.memory_bytes, pid) for pid in self._crew.pids)
        return {"added by init": max(added), "now": now}

    def pause(self) -> None:
        """Stops all ranks; returns once no thread of them runs.

        Raises:
          BenchError: one did not stop.
        """
        self._paused = True
        if moving := processes.stop(self._crew.pids):
            raise self._crew.failure(f"processes {moving} did not stop at SIGSTOP, or have ended")

    def resume(self) -> None:
        """Lets all ranks go on."""
        self._paused = False
        processes.wake(self._crew.pids)

    def close(self) -> None:
        """Ends the ranks: in order if they can, else by force.  Nothing of them is left.

        Raises:
          BenchError: a process could not be killed.
        """
        self.resume()
        self._crew.close()

    def _run(self, part: str, count: int) -> float:
        """Runs the case at hand; returns the slowest rank's median, and keeps the mean in mind."""
        pace_s = self._pace_s.get((self._prepared, part), 0.0)
        times = self._ask("run", planned_s=3 * count * pace_s, part=part, count=count)
        self._pace_s[self._prepared, part] = max(time["mean_s"] for time in times)
        return float(max(time["median_s"] for time in times))

    def _iterations(self, part: str, seconds: float) -> int:
        # By the mean: on a busy machine it is far more than the median.
        count = round(seconds / max(self._pace_s[self._prepared, part], 1e-9))
        return max(_LEAST_ITERATIONS, min(_MOST_ITERATIONS, count))

    def _ask(self, name: str, planned_s: float = 0.0, **arguments: Any) -> list[Any]:
        self._must_not_be_paused()
        return self._crew.ask(name, planned_s + _SLACK_S, **arguments)

    def _look(self, reader: Any, pid: int) -> Any:
        try:
            return reader(pid)
        except OSError as error:
            raise self._crew.failure(f"process {pid} cannot be looked at: {error}") from error

    def _must_not_be_paused(self) -> None:
        if self._paused:
            raise RuntimeError(f"{self._system.name}: the ranks are stopped; call resume() first")
