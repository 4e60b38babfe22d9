"""What is measured: one value of one case under one system, in one round.  Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Sample"]


@dataclass(frozen=True)
class Sample:
    """One value.

    Attributes:
      section: "collective", "step", "core", "limit", "instructions", "idle", "launch" or "memory".
      case: of the section, e.g. the name of a `cases.Case`.
      system: the name of a `systems.System`; "" for what belongs to the machine.
      part: "gross", or "baseline": the same without an exchange.
      size: ranks.
      round: from 0; all systems have their turn in each.
      value: in `unit`; a time is the median over the round's iterations, of the slowest rank.
      unit: "s", "B/s", "B", "instructions" or "switches".
      foreign_cpus: CPUs that processes which are not the benchmark's used just before.
    """

    section: str
    case: str
    system: str
    part: str
    size: int
    round: int
    value: float
    unit: str
    foreign_cpus: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"{self.system}, {self.case}: {self.value} is no figure")
