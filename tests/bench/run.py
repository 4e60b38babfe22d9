"""A run, section by section.  Whatever cannot be measured becomes a note, and the run goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import plan, units
from tests.bench.cases import Case
from tests.bench.errors import WrongResult
from tests.bench.fleet import Fleet
from tests.bench.parts import JobLike, Parts, SystemLike
from tests.bench.plan import Settings
from tests.bench.quiet import Quiet
from tests.bench.record import OURS, Note, Record, is_ours
from tests.bench.results import BUSY_CPUS, JUDGED_SIZE
from tests.bench.samples import Sample

__all__ = ["Run", "section_of"]

_VERBS = {
    "missing": "not measured",
    "failed": "failed",
    "wrong": "a wrong result",
}  # by the kind of a note
_PARTS = ("gross", "baseline")
_LIMIT_S = 0.3  # each limit, once per round
_CORE_CASE_S = 0.1  # each case of the core, once per round and transport
_TRANSPORTS = {"shm": OURS, "tcp": f"{OURS}-tcp"}  # and the system whose column has its figures
_QUICK_CORE = ("allreduce 4 B", "allreduce 1 MiB", "allreduce 16 MiB")
_BY_INIT, _AFTER_ALL = "added by init()", "after all cases"
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
      cut: what was left out for want of time.
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
        self.cut: list[str] = []
        self._deadline_s = 0.0

    def all(self, cases: Sequence[Case], systems: Sequence[SystemLike]) -> None:
        """Runs all sections.  Raises KeyboardInterrupt, after having ended all jobs."""
        self._deadline_s = time.monotonic() + self._settings.deadline_s
        try:
            self._all(cases, systems)
        finally:
            if self.cut:
                text = f"the time was up: {'; '.join(self.cut)}"
                self._note("remark", "", "", "", 0, text)

    def _all(self, cases: Sequence[Case], systems: Sequence[SystemLike]) -> None:
        self._look_at_machine()
        usable = [system for system in systems if self._is_usable(system)]
        with self._fleet(JUDGED_SIZE) as fleet:
            able = self._start(fleet, usable, cases)
            for place, case in enumerate(cases):
                if not self._settings.only_cases:
                    # Spread over the run, so that they meet what the cases meet.
                    for number in plan.at(place, len(cases), self._settings.rounds):
                        self._limits(number)
                        self._core(number)
                self._case(fleet, case, able, cases[place + 1 :])
            if self._settings.only_cases:
                return
            self._memory_of_all_cases(fleet, usable)
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

    def _case(
        self,
        fleet: Fleet,
        case: Case,
        able: Mapping[str, Sequence[SystemLike]],
        later: Sequence[Case],
    ) -> None:
        """All rounds of a case, or those for which there is time."""
        now_s = time.monotonic()
        left_s = self._deadline_s - plan.later_s(self._settings) - now_s
        planned_s = sum(plan.case_s(self._settings, len(able[each.name])) for each in later)
        until_s = now_s + plan.share_s(left_s, planned_s, len(later))
        for number in range(self._settings.rounds):
            if number == 0 and self._is_late(case.name):
                return
            if number > 0 and time.monotonic() > until_s:
                self.cut.append(f"{case.name} has {number} of {self._settings.rounds} rounds")
                return
            self._turns(fleet, number, case, plan.order(able[case.name], case.name, number))

    def _start(
        self, fleet: Fleet, systems: Iterable[SystemLike], cases: Sequence[Case]
    ) -> dict[str, list[SystemLike]]:
        """Returns, by case, the systems that can do it."""
        able: dict[str, list[SystemLike]] = {case.name: [] for case in cases}
        for system in systems:
            job = None
            while job is None and not fleet.gave_up(system) and not self._is_late(system.name):
                self._quiet.wait(_SHORT_PATIENCE_S)
                job = fleet.start(system)
            if job is None:
                continue
            self._say(f"{system.name}: {fleet.size} ranks, first op after {job.first_op_s:.1f} s")
            for case in cases:
                can = fleet.ask(system, section_of(case), case.name, partial(_can, case))
                if can:
                    able[case.name].append(system)
                elif can is not None:
                    # All of it is there for ours, so an answer of no is an error of ours.
                    kind = "failed" if is_ours(system.name) else "missing"
                    text = "tests/bench has no such operation for it"
                    self._note(kind, section_of(case), case.name, system.name, fleet.size, text)
        return able

    def _limits(self, number: int) -> None:
        for case, unit, measure in (
            ("memcpy of 64 MiB, two processes at once, each", "B/s", self._parts.memcpy),
            ("futex ping-pong of two processes, round trip", "s", self._parts.futex_ping_pong),
        ):
            if self._is_late("limits of the machine"):
                return
            busy = self._quiet.wait()
            value = self._try("limit", case, "", partial(measure, _LIMIT_S))
            if value is not None:
                self._add("limit", case, "", "gross", JUDGED_SIZE, number, value, unit, busy)

    def _core(self, number: int) -> None:
        quick = self._settings.quick
        for transport in plan.order(["shm"] if quick else _TRANSPORTS, "core", number):
            if self._is_late("the core alone"):
                return
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
            if self._is_late(f"a part of {case.name}, {fleet.size} ranks"):
                break
            busy = self._quiet.wait()

            def both(job: JobLike) -> tuple[float, float]:
                # What being the second does to one part, it does to the other in the next round.
                parts = _PARTS if number % 2 == 0 else _PARTS[::-1]
                found = {part: job.measure(case, part, self._settings.turn_s) for part in parts}
                return found["gross"], found["baseline"]

            values = fleet.ask(system, section_of(case), case.name, both)
            if values is None:
                continue
            for part, value in zip(_PARTS, values):
                self._add(section_of(case), case.name, system.name, part, fleet.size, number,
                          value, "s", busy)  # fmt: skip
            seen[system.name] = units.one(values[0], "s") + ("!" if busy > BUSY_CPUS else "")
        names = sorted(seen, key=[s.name for s in self._parts.systems].index)
        figures = ", ".join(f"{name} {seen[name]}" for name in names)
        self._say(f"round {number + 1}, {fleet.size} ranks, {case.name}: {figures or 'nobody'}")

    def _memory_of_all_cases(self, fleet: Fleet, systems: Iterable[SystemLike]) -> None:
        for system in systems:
            if fleet.gave_up(system) or self._is_late("memory after all cases"):
                continue
            if not fleet.is_first(system):
                text = "it did not live through all cases in one piece"
                self._note("missing", "memory", _AFTER_ALL, system.name, fleet.size, text)
                continue
            busy = self._quiet.wait()
            found = fleet.ask(system, "memory", _AFTER_ALL, lambda job: job.memory())
            if found is not None:
                self._add("memory", _AFTER_ALL, system.name, "gross", fleet.size, 0,
                          found["now"], "B", busy)  # fmt: skip

    def _wire(self) -> None:
        case = "iperf3 between two network namespaces"
        if self._is_late(case):
            return
        busy = self._quiet.wait()
        value = self._try("limit", case, "", self._parts.wire)
        if value is not None:
            self._add("limit", case, "", "gross", JUDGED_SIZE, 0, value, "B/s", busy)

    def _launch(self, systems: Sequence[SystemLike]) -> None:
        """Starts that do nothing else: of a job that has run cases, idling and memory say less."""
        for number in range(self._settings.launches):
            launched = [
                system
                for system in systems
                if system.name in plan.LAUNCHED or (number == 0 and not self._settings.quick)
            ]
            for system in plan.order(launched, "launch", number):
                if self._is_late(f"launch {number + 1}"):
                    continue
                busy = self._quiet.wait()
                # One fleet for each: a launch that fails costs the others nothing.
                with self._fleet(JUDGED_SIZE, "launches") as fleet:
                    job = fleet.start(system)
                    if job is not None:
                        self._say(f"launch {number + 1}, {system.name}: {job.first_op_s:.2f} s")
                        self._look_at_launched(fleet, system, number, job, busy)

    def _look_at_launched(
        self, fleet: Fleet, system: SystemLike, number: int, job: JobLike, busy: float
    ) -> None:
        def add(section: str, case: str, value: float, unit: str, busy: float) -> None:
            self._add(section, case, system.name, "gross", fleet.size, number, value, unit, busy)

        add("launch", "command to first op", job.first_op_s, "s", busy)
        add("launch", "init()", job.init_s, "s", busy)
        memory = fleet.ask(system, "memory", _BY_INIT, lambda job: job.memory())
        if memory is not None:
            add("memory", _BY_INIT, memory["added by init"], "B", busy)
        if number >= plan.IDLE_LAUNCHES:
            return
        seconds = self._settings.idle_s
        busy = self._quiet.wait()
        case = f"CPU time in {seconds:.0f} s"
        idle = fleet.ask(system, "idle", case, lambda job: job.idle(seconds))
        if idle is not None:
            add("idle", case, idle[0], "s", busy)
            add("idle", f"context switches in {seconds:.0f} s", idle[1], "switches", busy)

    def _instructions(self) -> None:
        if self._is_late("instructions"):
            return
        self._say("counting instructions")
        found = self._try("instructions", "enqueue to done", OURS, self._parts.instructions) or {}
        for case, value in found.items():
            # The number of ranks is part of the case; load changes nothing.
            self._add("instructions", case, OURS, "gross", JUDGED_SIZE, 0, value, "instructions", 0)

    def _more_ranks(self, size: int, systems: Sequence[SystemLike], cases: Sequence[Case]) -> None:
        chosen = [case for case in cases if case.name in self._settings.more_cases]
        for system in (system for system in systems if system.judged):
            if self._is_late(f"{size} ranks of {system.name}"):
                continue
            # One system at a time: the ranks of all would not fit into a small machine's memory.
            with self._fleet(size) as fleet:
                able = self._start(fleet, [system], chosen)
                for number in range(self._settings.more_rounds):
                    for case in chosen:
                        if able[case.name] and not self._is_late(f"{size} ranks of {system.name}"):
                            self._turns(fleet, number, case, able[case.name])

    # What the sections share.

    def _fleet(self, size: int, folder: str = "cases") -> Fleet:
        return Fleet(self._parts, self.record, size, self._folder / folder, self._say)

    def _is_late(self, what: str) -> bool:
        """Whether there is no time left to begin with it, which is then said at the end."""
        late = time.monotonic() > self._deadline_s
        if late and (text := f"without {what}") not in self.cut:
            self.cut.append(text)
        return late

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
            kind = "wrong" if isinstance(error, WrongResult) else "missing" if lacks else "failed"
            self._note(kind, section, case, system, 0, str(error))
            return None

    def _note(self, kind: str, section: str, case: str, system: str, size: int, text: str) -> None:
        self.record.notes.append(Note(kind, section, case, system, size, text))
        words = (", ".join(filter(None, (system, case))), _VERBS.get(kind), text)
        self._say(": ".join(filter(None, words)))

    def _add(
        self, section: str, case: str, system: str, part: str, size: int, number: int,
        value: float, unit: str, busy: float,
    ) -> None:  # fmt: skip
        self.record.samples.append(
            Sample(section, case, system, part, size, number, value, unit, busy)
        )
