"""The benchmarks' driver, with jobs that are made up: what fails is said, and the rest goes on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.bench import __main__ as driver
from tests.bench import fleet, parts, record, report, results
from tests.bench.cases import Case
from tests.bench.job import BenchError
from tests.bench.limits import Unavailable

CASES = ("eager 4 B", "allreduce 1 MiB")


@dataclass(frozen=True)
class FakeSystem:
    name: str
    title: str
    judged: bool


SYSTEMS = tuple(FakeSystem(n, f"fake {n}", n != "torch") for n in ("ours", "gloo", "mpi", "torch"))


class World:
    """All jobs of a run; sees to it that at most one is awake, and none is left."""

    def __init__(self) -> None:
        self.awake: set[str] = set()
        self.living: list[FakeJob] = []
        self.starts: list[str] = []
        self.asked: list[tuple[str, str, str]] = []
        self.dies_at: dict[tuple[str, str], int] = {}  # (system, case) to the number of its turn
        self.unstartable: set[str] = set()
        self.before_turn: Callable[[], object] = lambda: None

    def parts(self, **changed: object) -> parts.Parts:
        def lacking(*_: object) -> float:
            raise Unavailable("only root can make network namespaces")

        made: dict[str, object] = {
            "systems": SYSTEMS,
            "usable": lambda system: "no torch here" if system.name == "torch" else None,
            "start": lambda system, size, folder: FakeJob(self, system.name, size),
            "unavailable": Unavailable,
            "memcpy": lambda seconds: 7e9,
            "futex_ping_pong": lambda seconds: 1e-5,
            "wire": lacking,
            "core": lambda size, transport, seconds, cases: {"allreduce 4 B": 5e-6},
            "instructions": lambda: {"one rank": 12345.0},
            **changed,
        }
        return parts.Parts(**made)  # type: ignore[arg-type]


class FakeJob:
    first_op_s, init_s = 2.5, 0.5
    usable = False  # after it has failed

    def __init__(self, world: World, system: str, size: int) -> None:
        if system in world.unstartable:
            raise BenchError("rank 0 ended with status 1")
        self._world, self._system = world, system
        world.starts.append(system)
        world.awake.add(system)

    def __enter__(self) -> FakeJob:
        self._world.living.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._world.awake.discard(self._system)
        self._world.living.remove(self)

    def can(self, case: Case) -> bool:
        return not (self._system == "mpi" and case.mode == "eager")

    def measure(self, case: Case, part: str, seconds: float) -> float:
        world = self._world
        assert world.awake == {self._system}
        world.before_turn()
        world.asked.append((self._system, case.name, part))
        turn = world.asked.count((self._system, case.name, "gross"))
        if turn == world.dies_at.get((self._system, case.name)):
            raise BenchError(f"rank 1 was killed in turn {turn}")
        return {"ours": 1.0, "gloo": 4.0, "mpi": 2.0}[self._system] * (
            0.5 if part != "gross" else 1
        )

    def idle(self, seconds: float) -> tuple[float, float]:
        return 0.001, 10.0

    def memory(self) -> dict[str, int]:
        return {"before init": 290_000_000, "after init": 300_000_000, "now": 400_000_000}

    def pause(self) -> None:
        self._world.awake.discard(self._system)

    def resume(self) -> None:
        self._world.awake.add(self._system)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    monkeypatch.setattr(driver, "_OUTPUT", tmp_path / "bench")
    monkeypatch.setattr(driver, "_DOCUMENT", tmp_path / "benchmarks.md")
    monkeypatch.setattr(driver, "Quiet", lambda left_s, say: AlwaysQuiet())
    return World()


class AlwaysQuiet:
    def wait(self, patience_s: float = 0.0) -> float:
        return 0.0


def run(
    world: World, tmp_path: Path, *arguments: str, **changed: object
) -> tuple[int, record.Record]:
    path = tmp_path / "run.json"
    options = ["--only", *CASES, "--no-wait", "--json", str(path), *arguments]
    code = driver.main(options, world.parts(**changed))
    assert world.living == [] and world.awake == set()
    return code, record.read(path)


def rounds_of(found: record.Record, system: str, case: str) -> list[int]:
    return [s.round for s in found.samples
            if (s.system, s.case, s.part) == (system, case, "gross")]  # fmt: skip


def test_a_run_alternates_and_says_what_it_could_not_measure(world, tmp_path, capsys) -> None:
    code, found = run(world, tmp_path, "--rounds", "3")
    assert code == 0
    turns = [system for system, case, part in world.asked if (case, part) == (CASES[0], "gross")]
    assert turns == ["ours", "gloo", "gloo", "ours", "ours", "gloo"]  # turned by one each round
    assert rounds_of(found, "ours", CASES[1]) == [0, 1, 2]
    text = capsys.readouterr().out
    assert "torch: not measured: no torch here" in text
    assert "mpi, eager 4 B: not measured: has no such operation" in text
    (row,) = (r for r in results.rows(found) if r.case == CASES[1] and r.section == "collective")
    assert row.best == "mpi" and row.ratio == 0.5


def test_a_system_that_dies_in_a_round_is_named_and_the_rest_goes_on(world, tmp_path) -> None:
    world.dies_at["gloo", CASES[1]] = 3
    code, found = run(world, tmp_path, "--only", CASES[1], CASES[0])
    assert code == 0  # it is the peer's failure
    assert rounds_of(found, "ours", CASES[1]) == [0, 1, 2, 3, 4]
    # Its other case has all rounds, by a second start; that in which it died is not asked again.
    assert rounds_of(found, "gloo", CASES[0]) == [0, 1, 2, 3, 4]
    assert rounds_of(found, "gloo", CASES[1]) == [0, 1]
    assert world.starts.count("gloo") == 2
    text = report.terminal(found)
    assert "gloo, allreduce 1 MiB: failed: rank 1 was killed in turn 3" in text
    (row,) = (r for r in results.rows(found) if r.case == CASES[1] and r.section == "collective")
    assert row.best == "mpi" and row.entries["gloo"].gross is None


def test_a_wrong_result_costs_the_case_and_not_the_job(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(FakeJob, "usable", True)
    world.dies_at["gloo", CASES[1]] = 3
    _, found = run(world, tmp_path)
    assert world.starts.count("gloo") == 1
    assert rounds_of(found, "gloo", CASES[0]) == [0, 1, 2, 3, 4]
    assert rounds_of(found, "gloo", CASES[1]) == [0, 1]


def test_a_failure_of_ours_is_the_exit_code(world, tmp_path, capsys) -> None:
    world.dies_at["ours", CASES[1]] = 2
    code, found = run(world, tmp_path)
    assert code == 1
    assert "error: ours, allreduce 1 MiB: rank 1 was killed" in capsys.readouterr().err
    assert rounds_of(found, "gloo", CASES[1]) == [0, 1, 2, 3, 4]


def test_a_system_that_does_not_start_is_left_out(world, tmp_path) -> None:
    world.unstartable.add("gloo")
    code, found = run(world, tmp_path)
    assert code == 0
    assert "gloo: failed: its ranks did not start: rank 0 ended" in report.terminal(found)
    assert rounds_of(found, "mpi", CASES[1]) == [0, 1, 2, 3, 4]


def test_a_system_is_given_up_after_some_failures(world, tmp_path) -> None:
    names = [CASES[0], CASES[1], "allreduce 4 B", "allreduce 64 KiB"]
    for name in names:
        world.dies_at["gloo", name] = 1
    code, found = run(world, tmp_path, "--only", *names)
    assert code == 0 and world.starts.count("gloo") == fleet._STARTS
    assert any("given up" in note.text for note in found.notes)


@pytest.mark.parametrize("error", [Unavailable("not built"), BenchError("element 0 is 3.0")])
def test_a_part_that_fails_is_noted_once_and_a_wrong_result_is_an_error(world, tmp_path, error):
    def core(*_: object) -> dict[str, float]:
        raise error

    path = tmp_path / "run.json"
    code = driver.main(["--quick", "--no-wait", "--json", str(path)], world.parts(core=core))
    found = record.read(path)
    assert code == (1 if isinstance(error, BenchError) else 0)
    notes = [note.text for note in found.notes if note.section == "core"]
    assert notes == [str(error)]  # once, not once for each round
    assert [n.text for n in found.notes if n.section == "limit"] == [
        "only root can make network namespaces"
    ]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_ends_its_jobs_and_writes_what_there_is(world, tmp_path, signum) -> None:
    world.before_turn = lambda: len(world.asked) > 10 and signal.raise_signal(signum)
    code, found = run(world, tmp_path)
    assert code == 130 and not found.complete
    assert rounds_of(found, "ours", CASES[0]) == [0, 1, 2]
    assert any("interrupted" in note.text for note in found.notes)


def test_rounds_end_when_the_time_is_up(world, tmp_path) -> None:
    world.before_turn = lambda: time.sleep(0.02)
    code, found = run(world, tmp_path, "--deadline", "0.1", "--rounds", "1000")
    assert code == 0
    assert len(rounds_of(found, "ours", CASES[0])) < 1000
    assert any("the time was up" in note.text for note in found.notes)


def test_only_a_whole_run_is_written_into_the_document(world, tmp_path, capsys) -> None:
    run(world, tmp_path, "--write-docs", "--rounds", "1")
    assert "only a complete run is written there" in capsys.readouterr().out
    assert not (tmp_path / "benchmarks.md").exists()


@pytest.mark.parametrize(
    "arguments",
    [["--only", "allreduce 3 B"], ["--systems", "nccl"], ["--rounds", "0"], ["--seconds", "nan"],
     ["--deadline", "0"],
     ["--no-wait", "--quiet-deadline", "5"], ["--quick=1"]],
)  # fmt: skip
def test_a_wrong_argument_is_refused(world, arguments, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        driver.main(arguments, world.parts())
    assert ended.value.code == 2
    assert "usage: tools/bench.sh" in capsys.readouterr().err


def test_more_ranks_are_measured_one_system_at_a_time(world, tmp_path) -> None:
    (tmp_path / "benchmarks.md").write_text(f"{driver.document.BEGIN}\n{driver.document.END}\n")
    path = tmp_path / "run.json"
    assert driver.main(["--no-wait", "--rounds", "1", "--json", str(path)], world.parts()) == 0
    found = record.read(path)
    assert {sample.size for sample in found.samples} == {2, 4, 8}
    launches = [s for s in found.samples if s.section == "launch" and s.system == "ours"]
    assert {s.round for s in launches} == {0, 1, 2, 3, 4}
    text = (tmp_path / "benchmarks.md").read_text()
    assert "All systems, 8 ranks, not judged" in text and "### Launch" in text
