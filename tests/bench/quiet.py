"""Whether the machine does other work, and waiting until it does not.

To be asked while all ranks are stopped, so that whatever runs is foreign.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.results import BUSY_CPUS

__all__ = ["Quiet", "busiest", "busy_ticks", "foreign_cpus"]

_LOOK_S = 0.1  # ten ticks of the clock that /proc counts by
_PATIENCE_S = 5.0  # before one turn
_STAT = Path("/proc/stat")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def busy_ticks(stat: str) -> int:
    """The ticks that all CPUs were not idle, from the text of /proc/stat.

    Time that a hypervisor gave to others ("steal") counts as busy; guests are part of user already.
    """
    fields = [int(field) for field in stat.splitlines()[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = (fields + [0] * 8)[:8]
    return user + nice + system + irq + softirq + steal


def foreign_cpus(look_s: float = _LOOK_S) -> float:
    """How many CPUs are busy now, from a look of `look_s` seconds."""
    before, start_s = busy_ticks(_STAT.read_text()), time.monotonic()
    time.sleep(look_s)
    ticks = busy_ticks(_STAT.read_text()) - before
    return max(0.0, ticks * _TICK_S / (time.monotonic() - start_s))


def busiest(look_s: float = 0.5, count: int = 3) -> list[str]:
    """Who uses most CPU time now, as "name (process id): 0.9 CPUs"; this process is left out."""
    before = _ticks_by_process()
    time.sleep(look_s)
    used = {
        key: (ticks - before[key]) * _TICK_S / look_s
        for key, ticks in _ticks_by_process().items()
        if key in before
    }
    top = sorted(used, key=lambda key: used[key], reverse=True)[:count]
    return [f"{name} ({pid}): {used[pid, name]:.1f} CPUs" for pid, name in top
            if used[pid, name] >= 0.1]  # fmt: skip


class Quiet:
    """Waits for quiet, with a limit for each turn and one for the whole run.

    Attributes:
      left_s: what may still be spent on waiting.
    """

    def __init__(
        self,
        left_s: float,
        say: Callable[[str], None],
        look: Callable[[], float] = foreign_cpus,
        name_them: Callable[[], list[str]] = busiest,
    ) -> None:
        """
        Args:
          left_s: seconds for all waits together; 0: only look.
          say: gets a line when a wait begins that is worth a line, and when no more is waited.
          look: returns the number of busy CPUs.
          name_them: returns who keeps them busy.
        """
        self.left_s = left_s
        self._say, self._look, self._name_them = say, look, name_them

    def wait(self, patience_s: float = _PATIENCE_S) -> float:
        """Waits for at most `patience_s`; returns the foreign CPUs that were seen last."""
        cpus = self._look()
        if cpus <= BUSY_CPUS or self.left_s <= 0:
            return cpus
        start_s = time.monotonic()
        names = ", ".join(self._name_them()) or "no process that can be seen"
        self._say(f"waiting for quiet: {cpus:.1f} CPUs are busy: {names}")
        deadline_s = start_s + min(patience_s, self.left_s)
        while cpus > BUSY_CPUS and time.monotonic() < deadline_s:
            cpus = self._look()
        self.left_s -= time.monotonic() - start_s
        if self.left_s <= 0:
            self._say("no more waiting for quiet: the time for it is spent; busy turns are marked")
        return cpus


def _ticks_by_process() -> dict[tuple[int, str], int]:
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
            head, _, tail = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            fields = tail.split()
            found[pid, head.partition("(")[2]] = int(fields[11]) + int(fields[12])
    return found
