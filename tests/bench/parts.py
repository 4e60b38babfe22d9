"""What the driver calls, gathered in one place, so that its tests can put fakes there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tests.bench import core, errors, instructions, job, limits, systems
from tests.bench.cases import Case

__all__ = ["JobLike", "Parts", "Start", "SystemLike", "real"]


class SystemLike(Protocol):
    """What the driver reads of a `systems.System`."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def judged(self) -> bool: ...


class JobLike(Protocol):
    """What the driver asks of a `job.Job`; each call may raise `errors.BenchError`."""

    first_op_s: float
    init_s: float

    @property
    def usable(self) -> bool: ...
    def can(self, case: Case) -> bool: ...
    def measure(self, case: Case, part: str, seconds: float) -> float: ...
    def idle(self, seconds: float) -> tuple[float, float]: ...
    def memory(self) -> dict[str, int]: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Start(Protocol):
    """What starts a system's ranks; see `job.Job` for the arguments."""

    def __call__(self, system: Any, size: int, folder: Path) -> AbstractContextManager[JobLike]: ...


@dataclass(frozen=True)
class Parts:
    """Everything that measures.

    Attributes:
      systems: in the order of the table.
      usable: returns why a system cannot be measured here, or None.
      start: makes a job; its `with` ends it.
      unavailable: the exception of what this machine lacks.
      memcpy, futex_ping_pong, wire, core, instructions: as in `limits`, `core`, `instructions`.
    """

    systems: Sequence[SystemLike]
    usable: Callable[[Any], str | None]
    start: Start
    unavailable: type[Exception]
    memcpy: Callable[[float], float]
    futex_ping_pong: Callable[[float], float]
    wire: Callable[[], float]
    core: Callable[[int, str, float, Sequence[str] | None], Mapping[str, float]]
    instructions: Callable[[], Mapping[str, float]]


def real() -> Parts:
    """The parts that measure this machine."""
    return Parts(
        systems=systems.SYSTEMS,
        usable=systems.usable,
        start=job.Job,
        unavailable=errors.Unavailable,
        memcpy=limits.memcpy,
        futex_ping_pong=limits.futex_ping_pong,
        wire=limits.wire,
        core=lambda size, transport, seconds, cases: core.run(
            size, transport, seconds, cases=cases
        ),
        instructions=instructions.count,
    )
