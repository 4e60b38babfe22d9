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
from tests.bench.errors import BenchError, Unavailable, WrongResult
from tests.bench.samples import Sample

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
        self.starts_late: dict[str, int] = {}  # system to the number of failing starts
        self.before_turn: Callable[[], object] = lambda: None

    def parts(self, **changed: object) -> parts.Parts:
        def lacking(*_: object) -> float:
            raise Unavailable("only root can make network namespaces")

        made: dict[str, object] = {
            "systems": SYSTEMS,
            "usable": lambda system: "no torch here" if system.name == "torch" else None,
            "start": lambda system, size, folder: FakeJob(self, system.name, folder),
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
    error = BenchError

    def __init__(self, world: World, system: str, folder: Path) -> None:
        of_cases = folder.parent.name == "cases"  # rather than a launch
        if of_cases:
            world.starts.append(system)
            world.starts_late[system] = left = world.starts_late.get(system, 0) - 1
        if system in world.unstartable or (of_cases and left >= 0):
            raise BenchError("rank 0 ended with status 1")
        self._world, self._system, self._of_cases = world, system, of_cases
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
        assert world.awake == {self._system} and self._of_cases
        world.before_turn()
        world.asked.append((self._system, case.name, part))
        turn = world.asked.count((self._system, case.name, "gross"))
        if turn == world.dies_at.get((self._system, case.name)):
            raise self.error(f"rank 1 was killed in turn {turn}")
        return {"ours": 1.0, "gloo": 4.0, "mpi": 2.0}[self._system] * (
            0.5 if part != "gross" else 1
        )

    def idle(self, seconds: float) -> tuple[float, float]:
        assert not self._of_cases
        return 0.001, 10.0

    def memory(self) -> dict[str, int]:
        return {"added by init": 20_000_000 if self._of_cases else 10_000_000, "now": 400_000_000}

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
    assert [sorted(turns[at : at + 2]) for at in (0, 2, 4)] == [["gloo", "ours"]] * 3
    parts_of_ours = [
        part for system, case, part in world.asked if (system, case) == ("ours", CASES[0])
    ]
    assert parts_of_ours == ["gross", "baseline", "baseline", "gross", "gross", "baseline"]
    assert rounds_of(found, "ours", CASES[1]) == [0, 1, 2]
    text = capsys.readouterr().out
    assert "torch: not measured: no torch here" in text
    assert "mpi, eager 4 B: not measured: tests/bench has no such operation for it" in text
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
    assert row.best == "mpi" and row.entries["gloo"].gross.count == 2  # no reason to doubt those


def test_a_case_that_ours_cannot_do_is_a_failure(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(FakeJob, "can", lambda self, case: self._system != "ours")
    code, found = run(world, tmp_path)
    assert code == 1
    assert {note.case for note in found.failures_of_ours()} == set(CASES)


def test_a_wrong_result_costs_the_case_and_not_the_job(world, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(FakeJob, "usable", True)
    monkeypatch.setattr(FakeJob, "error", WrongResult)
    world.dies_at["gloo", CASES[1]] = 3
    _, found = run(world, tmp_path)
    assert [(note.kind, note.system) for note in found.notes if note.case == CASES[1]] == [
        ("wrong", "gloo")
    ]
    (row,) = (r for r in results.rows(found) if r.case == CASES[1])
    assert row.entries["gloo"].gross is None
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
    assert code == 0 and world.starts.count("gloo") == fleet._STARTS
    text = report.terminal(found)
    assert text.count("gloo: failed: its ranks did not start: rank 0 ended") == 1
    assert "gloo: not measured: given up after it had failed 3 times" in text
    assert rounds_of(found, "mpi", CASES[1]) == [0, 1, 2, 3, 4]


def test_a_system_that_starts_at_the_second_attempt_is_measured(world, tmp_path) -> None:
    world.starts_late["gloo"] = 1
    code, found = run(world, tmp_path)
    assert code == 0 and world.starts.count("gloo") == 2
    assert rounds_of(found, "gloo", CASES[1]) == [0, 1, 2, 3, 4]


def test_a_system_is_given_up_after_some_failures(world, tmp_path) -> None:
    names = [CASES[0], CASES[1], "allreduce 4 B", "allreduce 64 KiB"]
    for name in names:
        world.dies_at["gloo", name] = 1
    code, found = run(world, tmp_path, "--only", *names)
    assert code == 0 and world.starts.count("gloo") == fleet._STARTS
    assert any("given up" in note.text for note in found.notes)


@pytest.mark.parametrize(
    "error", [Unavailable("not built"), BenchError("it died"), WrongResult("element 0 is 3.0")]
)
def test_a_part_that_fails_is_noted_once_and_a_wrong_result_is_an_error(world, tmp_path, error):
    def core(*_: object) -> dict[str, float]:
        raise error

    path = tmp_path / "run.json"
    code = driver.main(["--quick", "--no-wait", "--json", str(path)], world.parts(core=core))
    found = record.read(path)
    assert code == (1 if isinstance(error, BenchError) else 0)
    notes = [(note.kind, note.text) for note in found.notes if note.section == "core"]
    kinds = {Unavailable: "missing", BenchError: "failed", WrongResult: "wrong"}
    assert notes == [(kinds[type(error)], str(error))]  # once, not once for each round
    assert [n.text for n in found.notes if n.section == "limit"] == [
        "only root can make network namespaces"
    ]


@pytest.fixture
def heeds_ctrl_c():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_ends_its_jobs_and_writes_what_there_is(
    world, tmp_path, monkeypatch, signum
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)  # also under nohup
    world.before_turn = lambda: len(world.asked) > 11 and signal.raise_signal(signum)
    code, found = run(world, tmp_path)
    assert code == 130 and not found.complete
    assert rounds_of(found, "ours", CASES[0]) == [0, 1, 2]
    assert any("interrupted" in note.text for note in found.notes)


def test_rounds_end_when_the_time_is_up(world, tmp_path) -> None:
    world.before_turn = lambda: time.sleep(0.02)
    code, found = run(world, tmp_path, "--deadline", "2", "--rounds", "1000")
    assert code == 0
    first, second = (len(rounds_of(found, "ours", case)) for case in CASES)
    assert 1 <= first < 1000 and 1 <= second < 1000  # the first leaves time for the second
    (text,) = (note.text for note in found.notes if "the time was up" in note.text)
    assert f"{CASES[0]} has {first} of 1000 rounds" in text


def test_the_deadline_holds_within_a_round(world, tmp_path) -> None:
    world.before_turn = lambda: time.sleep(0.1)
    _, found = run(world, tmp_path, "--deadline", "0.05")
    assert len({sample.system for sample in found.samples}) == 1  # it had begun
    (text,) = (note.text for note in found.notes if "the time was up" in note.text)
    assert f"a part of {CASES[0]}, 2 ranks" in text and f"without {CASES[1]}" in text


def test_what_has_no_time_left_is_said(world, tmp_path) -> None:
    path = tmp_path / "run.json"
    world.before_turn = lambda: time.sleep(0.02)
    arguments = ["--no-wait", "--deadline", "0.05", "--json", str(path)]
    assert driver.main(arguments, world.parts()) == 0
    found = record.read(path)
    assert not found.complete and not [s for s in found.samples if s.section == "launch"]
    (text,) = (note.text for note in found.notes if "the time was up" in note.text)
    for what in ("without step cnn", "without launch 1", "instructions", "8 ranks of ours"):
        assert what in text


def whole(world: World, tmp_path: Path, *arguments: str, **changed: object) -> tuple[str, str]:
    """Runs all cases; returns the document and the remarks."""
    path = tmp_path / "benchmarks.md"
    path.write_text(f"{driver.document.BEGIN}\nformer figures\n{driver.document.END}\n")
    json_path = tmp_path / "run.json"
    driver.main(["--no-wait", "--json", str(json_path), *arguments], world.parts(**changed))
    found = record.read(json_path)
    fails = any(system == "ours" for system, _ in world.dies_at)
    assert found.complete == (not arguments and not changed and not fails)
    return path.read_text(), " ".join(note.text for note in found.notes)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--rounds", "4"], "fewer than 5 rounds"),
        (["--seconds", "0.25"], "seconds for each part"),
        (["--quick"], "only a part was asked for"),
        (["--only", *CASES], "only a part was asked for"),
        (["--systems", "ours", "torch"], "the peer has no figures"),
        (["--deadline", "0.001"], "did not come to its end"),
    ],
)
def test_only_a_whole_run_is_written_into_the_document(
    world, tmp_path, capsys, arguments: list[str], why: str
) -> None:
    text, _ = whole(world, tmp_path, *arguments)
    assert "former figures" in text
    assert "benchmarks.md is left as it was: " in (said := capsys.readouterr().out) and why in said
    text, remarks = whole(world, tmp_path, *arguments, "--write-docs")
    assert (
        "former figures" not in text
        and "written by --write-docs, though" in remarks
        and why in remarks
    )


def test_a_run_in_which_ours_failed_is_not_written(world, tmp_path, capsys) -> None:
    world.dies_at["ours", CASES[1]] = 2
    assert "former figures" in whole(world, tmp_path)[0]
    assert "left as it was: ours failed" in capsys.readouterr().out


def test_a_run_without_the_peer_is_not_written(world, tmp_path, capsys) -> None:
    def usable(system: FakeSystem) -> str | None:
        return None if system.name == "ours" else "not built"

    assert "former figures" in whole(world, tmp_path, usable=usable)[0]
    assert "left as it was: the peer has no figures" in capsys.readouterr().out


def test_a_whole_run_is_written_unless_forbidden(world, tmp_path) -> None:
    assert "former figures" not in whole(world, tmp_path)[0]
    path = tmp_path / "benchmarks.md"
    path.write_text("as it was")
    driver.main(["--no-wait", "--no-write-docs", "--json", str(tmp_path / "a")], world.parts())
    assert path.read_text() == "as it was"


def test_to_check_the_arguments_measures_nothing(world, capsys) -> None:
    assert driver.main(["--check", "--quick"], world.parts()) == 0
    assert world.starts == [] and capsys.readouterr().out == ""
    with pytest.raises(SystemExit):
        driver.main(["--check", "--quik"], world.parts())


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
    text, _ = whole(world, tmp_path)
    found = record.read(tmp_path / "run.json")
    assert {sample.size for sample in found.samples} == {2, 4, 8}
    assert "All systems, 8 ranks, not judged" in text and "### Launch" in text


def samples_of(found: record.Record, section: str, system: str, case: str) -> list[Sample]:
    return [s for s in found.samples
            if (s.section, s.system) == (section, system) and s.case.startswith(case)]  # fmt: skip


def test_launch_idle_and_memory_are_those_of_jobs_as_users_start_them(world, tmp_path) -> None:
    whole(world, tmp_path)
    found = record.read(tmp_path / "run.json")
    launches = samples_of(found, "launch", "ours", "command to first op")
    assert [sample.round for sample in launches] == [0, 1, 2, 3, 4]
    assert len(samples_of(found, "idle", "mpi", "CPU time")) == 3
    added = samples_of(found, "memory", "gloo", "added by init()")
    assert [sample.value for sample in added] == [10_000_000.0] * 5
    rows = {(row.section, row.case): row for row in results.rows(found) if row.size == 2}
    assert not rows["idle", "CPU time in 5 s"].noisy
    assert rows["memory", "after all cases"].doubts == ("few rounds",)


def test_a_job_that_was_started_again_has_no_memory_of_all_cases(world, tmp_path) -> None:
    world.dies_at["gloo", CASES[1]] = 3
    whole(world, tmp_path)
    found = record.read(tmp_path / "run.json")
    assert samples_of(found, "memory", "gloo", "after all cases") == []
    assert len(samples_of(found, "memory", "mpi", "after all cases")) == 1
    assert any("did not live through all cases" in note.text for note in found.notes)


def test_a_run_without_ours_is_an_error(world, tmp_path, capsys) -> None:
    world.unstartable.add("ours")
    code, found = run(world, tmp_path)
    assert code == 1 and not found.complete
    assert rounds_of(found, "mpi", CASES[1]) == [0, 1, 2, 3, 4]


def test_the_table_is_there_though_nothing_can_be_written(world, tmp_path, capsys) -> None:
    options = ["--only", *CASES, "--no-wait", "--json", str(tmp_path), "--rounds", "1"]
    assert driver.main(options, world.parts()) == 0
    printed = capsys.readouterr()
    assert "best peer" in printed.out and "cannot write" in printed.err


def test_a_case_given_twice_is_measured_once(world, tmp_path) -> None:
    _, found = run(world, tmp_path, "--only", CASES[1], CASES[1], "--rounds", "1")
    assert rounds_of(found, "ours", CASES[1]) == [0]


@pytest.mark.parametrize("busy", [0.0, 1.5])
def test_the_load_is_told_with_every_figure(world, tmp_path, monkeypatch, busy: float) -> None:
    monkeypatch.setattr(AlwaysQuiet, "wait", lambda self, patience_s=0.0: busy)
    path = tmp_path / "run.json"
    driver.main(["--no-wait", "--json", str(path)], world.parts())
    found = record.read(path)
    assert found.complete == (busy == 0.0)
    timed = [sample for sample in found.samples if sample.section != "instructions"]
    assert {sample.foreign_cpus for sample in timed} == {busy}
