"""A run, section by section.  Whatever cannot be measured becomes a note, and the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import units
from tests.bench.cases import Case
from tests.bench.fleet import Fleet
from tests.bench.parts import JobLike, Parts, SystemLike
from tests.bench.plan import Settings, rotated
from tests.bench.quiet import Quiet
from tests.bench.record import OURS, Note, Record
from tests.bench.results import BUSY_CPUS, JUDGED_SIZE
from tests.bench.samples import Sample

__all__ = ["Run", "section_of"]

_VERBS = {"missing": "not measured", "failed": "failed"}  # by the kind of a note
_LIMIT_S = 0.3  # each limit, once per round
_CORE_CASE_S = 0.1  # each case of the core, once per round and transport
_TRANSPORTS = {"shm": OURS, "tcp": f"{OURS}-tcp"}  # and the system whose column has its figures
_QUICK_CORE = ("allreduce 4 B", "allreduce 1 MiB", "allreduce 16 MiB")
_QUICK_IDLE = (OURS, "mpi", "gloo")  # ours, and the first peer of these that runs
_LAUNCHED = (OURS, "gloo", "mpi")
_LONG_PATIENCE_S = 20.0  # before the run
_SHORT_PATIENCE_S = 1.0  # before a start; what may be spent on waiting is worth more later


def _can(case: Case, job: JobLike) -> bool:
    return job.can(case)


def section_of(case: Case) -> str:
    return "step" if case.mode == "step" else "collective"


class Run:
    """Takes the samples.

    Attributes:
      record: what has been found so far; also after an exception.
    """

    def __init__(
        self,
        parts: Parts,
        record: Record,
        settings: Settings,
        folder: Path,
        quiet: Quiet,
        say: Callable[[str], None],
    ) -> None:
        """
        Args:
          parts: what measures.
          record: where samples and notes go.
          settings: of the run.
          folder: for the output of the jobs.
          quiet: is asked before each turn.
          say: gets a line of progress.
        """
        self.record = record
        self._parts, self._settings, self._folder = parts, settings, folder
        self._quiet, self._say = quiet, say
        self._lacking: set[str] = set()

    def all(self, cases: Sequence[Case], systems: Sequence[SystemLike]) -> None:
        """Runs all sections.  Raises KeyboardInterrupt, after having ended all jobs."""
        deadline_s = time.monotonic() + self._settings.deadline_s
        self._look_at_machine()
        usable = [system for system in systems if self._is_usable(system)]
        with self._fleet(JUDGED_SIZE) as fleet:
            able = self._start(fleet, usable, cases)
            late = False
            for place, case in enumerate(cases):
                # Spread over the run, so that they meet what the cases meet.
                if place < self._settings.rounds and not self._settings.only_cases:
                    self._limits(place)
                    self._core(place)
                for number in range(self._settings.rounds):
                    late = late or time.monotonic() > deadline_s
                    if number > 0 and late:
                        break
                    self._turns(fleet, number, case, rotated(able[case.name], number))
            if late:
                self._note("remark", "", "", "", 0, "the time was up: some cases have fewer rounds")
            if self._settings.only_cases:
                return
            self._memory(fleet, usable)
            self._idle(fleet, usable)
        self._wire()
        self._launch(usable)
        if not self._settings.quick:
            self._instructions()
        for size in self._settings.more_sizes:
            self._more_ranks(size, usable, cases)

    # The sections, in their order.

    def _look_at_machine(self) -> None:
        cpus = self._quiet.wait(min(_LONG_PATIENCE_S, self._settings.quiet_s / 3))
        self._say(f"the machine: {cpus:.1f} CPUs are busy with other work")

    def _start(
        self, fleet: Fleet, systems: Iterable[SystemLike], cases: Sequence[Case]
    ) -> dict[str, list[SystemLike]]:
        """Returns, by case, the systems that can do it."""
        able: dict[str, list[SystemLike]] = {case.name: [] for case in cases}
        for system in systems:
            busy = self._quiet.wait(_SHORT_PATIENCE_S)
            job = fleet.start(system)
            if job is None:
                continue
            self._say(f"{system.name}: {fleet.size} ranks, first op after {job.first_op_s:.1f} s")
            if not (self._settings.launches or self._settings.only_cases):
                self._add_launch(system.name, 0, job, busy)
            for case in cases:
                can = fleet.ask(system, section_of(case), case.name, partial(_can, case))
                if can:
                    able[case.name].append(system)
                elif can is not None:
                    text = "has no such operation"
                    self._note(
                        "missing", section_of(case), case.name, system.name, fleet.size, text
                    )
        return able

    def _limits(self, number: int) -> None:
        for case, unit, measure in (
            ("memcpy of 64 MiB, two processes at once, each", "B/s", self._parts.memcpy),
            ("futex ping-pong of two processes, round trip", "s", self._parts.futex_ping_pong),
        ):
            busy = self._quiet.wait()
            value = self._try("limit", case, "", partial(measure, _LIMIT_S))
            if value is not None:
                self._add("limit", case, "", "gross", JUDGED_SIZE, number, value, unit, busy)

    def _core(self, number: int) -> None:
        quick = self._settings.quick
        for transport in rotated(["shm"] if quick else list(_TRANSPORTS), number):
            busy = self._quiet.wait()
            system, cases = _TRANSPORTS[transport], _QUICK_CORE if quick else None
            measure = partial(self._parts.core, JUDGED_SIZE, transport, _CORE_CASE_S, cases)
            found = self._try("core", f"the core alone, {transport}", system, measure) or {}
            for case, value in found.items():
                self._add("core", case, system, "gross", JUDGED_SIZE, number, value, "s", busy)

    def _turns(self, fleet: Fleet, number: int, case: Case, systems: Sequence[SystemLike]) -> None:
        """One round of one case; in its line of progress "!" stands for a busy machine."""
        seen = {}
        for system in systems:
            busy = self._quiet.wait()

            def both(job: JobLike) -> tuple[float, float]:
                seconds = self._settings.turn_s
                return job.measure(case, "gross", seconds), job.measure(case, "baseline", seconds)

            values = fleet.ask(system, section_of(case), case.name, both)
            if values is None:
                continue
            for part, value in zip(("gross", "baseline"), values):
                self._add(section_of(case), case.name, system.name, part, fleet.size, number,
                          value, "s", busy)  # fmt: skip
            seen[system.name] = units.one(values[0], "s") + ("!" if busy > BUSY_CPUS else "")
        names = sorted(seen, key=[s.name for s in self._parts.systems].index)
        figures = ", ".join(f"{name} {seen[name]}" for name in names)
        self._say(f"round {number + 1}, {fleet.size} ranks, {case.name}: {figures or 'nobody'}")

    def _memory(self, fleet: Fleet, systems: Iterable[SystemLike]) -> None:
        for system in systems:
            found = fleet.ask(system, "memory", "of a rank", lambda job: job.memory())
            if found is None:
                continue
            # Not the sizes at the start: who starts first has nobody yet to share libraries with.
            added = found["after init"] - found["before init"]
            for when, value in (("added by init()", added), ("after all cases", found["now"])):
                self._add("memory", when, system.name, "gross", fleet.size, 0, value, "B", 0.0)

    def _idle(self, fleet: Fleet, systems: Sequence[SystemLike]) -> None:
        chosen = list(systems)
        if self._settings.quick:
            by_name = {system.name: system for system in systems}
            chosen = [by_name[name] for name in _QUICK_IDLE if name in by_name][:2]
        seconds = self._settings.idle_s
        for system in chosen:
            self._say(f"{system.name}: idle for {seconds:.0f} s")
            busy = self._quiet.wait()
            found = fleet.ask(system, "idle", "a rank", lambda job: job.idle(seconds))
            if found:
                for case, value, unit in (
                    (f"CPU time in {seconds:.0f} s", found[0], "s"),
                    (f"context switches in {seconds:.0f} s", found[1], "switches"),
                ):
                    self._add("idle", case, system.name, "gross", fleet.size, 0, value, unit, busy)

    def _wire(self) -> None:
        case = "iperf3 between two network namespaces"
        busy = self._quiet.wait()
        value = self._try("limit", case, "", self._parts.wire)
        if value is not None:
            self._add("limit", case, "", "gross", JUDGED_SIZE, 0, value, "B/s", busy)

    def _launch(self, systems: Sequence[SystemLike]) -> None:
        launched = [system for system in systems if system.name in _LAUNCHED]
        for number in range(self._settings.launches):
            for system in rotated(launched, number):
                busy = self._quiet.wait()
                # One fleet for each: a launch that fails costs the others nothing.
                with self._fleet(JUDGED_SIZE) as fleet:
                    job = fleet.start(system)
                    if job is not None:
                        self._add_launch(system.name, number, job, busy)
                        self._say(f"launch {number + 1}, {system.name}: {job.first_op_s:.2f} s")

    def _instructions(self) -> None:
        self._say("counting instructions")
        found = self._try("instructions", "enqueue to done", OURS, self._parts.instructions) or {}
        for case, value in found.items():
            # The number of ranks is part of the case; load changes nothing.
            self._add("instructions", case, OURS, "gross", JUDGED_SIZE, 0, value, "instructions", 0)

    def _more_ranks(self, size: int, systems: Sequence[SystemLike], cases: Sequence[Case]) -> None:
        chosen = [case for case in cases if case.name in self._settings.more_cases]
        for system in (system for system in systems if system.judged):
            # One system at a time: the ranks of all would not fit into a small machine's memory.
            with self._fleet(size) as fleet:
                able = self._start(fleet, [system], chosen)
                for number in range(self._settings.more_rounds):
                    for case in chosen:
                        if able[case.name]:
                            self._turns(fleet, number, case, able[case.name])

    # What the sections share.

    def _fleet(self, size: int) -> Fleet:
        return Fleet(self._parts, self.record, size, self._folder, self._say)

    def _is_usable(self, system: SystemLike) -> bool:
        why = self._parts.usable(system)
        if why is not None:
            self._note("missing", "", "", system.name, 0, why)
        return why is None

    def _try(self, section: str, case: str, system: str, measure: Callable[[], object]) -> Any:
        if case in self._lacking:
            return None
        try:
            return measure()
        except Exception as error:
            self._lacking.add(case)
            # A wrong result of ours is an error of the run; what the machine lacks is not.
            lacks = isinstance(error, self._parts.unavailable) or not system
            self._note("missing" if lacks else "failed", section, case, system, 0, str(error))
            return None

    def _note(self, kind: str, section: str, case: str, system: str, size: int, text: str) -> None:
        self.record.notes.append(Note(kind, section, case, system, size, text))
        words = (", ".join(filter(None, (system, case))), _VERBS.get(kind), text)
        self._say(": ".join(filter(None, words)))

    def _add_launch(self, system: str, number: int, job: JobLike, busy: float) -> None:
        for case, value in (("command to first op", job.first_op_s), ("init()", job.init_s)):
            self._add("launch", case, system, "gross", JUDGED_SIZE, number, value, "s", busy)

    def _add(
        self, section: str, case: str, system: str, part: str, size: int, number: int,
        value: float, unit: str, busy: float,
    ) -> None:  # fmt: skip
        self.record.samples.append(
            Sample(section, case, system, part, size, number, value, unit, busy)
        )
