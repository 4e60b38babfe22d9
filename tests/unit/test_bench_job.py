"""The benchmark's jobs: what they see of ranks that go wrong, and that nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.bench import crew, job, processes, rank_values, systems
from tests.bench.cases import CASES, Case, case_named
from tests.bench.errors import BenchError, WrongResult
from tests.bench.job import Job
from tests.bench.systems import SYSTEMS, System, system_named, usable

_CASE = case_named("eager 4 B")
_SIZE = 2
_SECONDS = 0.05


@pytest.fixture(autouse=True)
def this_interpreter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fake's ranks run under the interpreter of the tests."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("BENCH_VENV", str(tmp_path))


def _fake(fault: str = "") -> System:
    backend = "tests.unit.bench_fake_backend"
    return System("fake", "a fake", False, backend, "ours", variables={"FAKE_FAULT": fault})


@pytest.fixture
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails if a process that a job started lives after the test."""
    marks: list[str] = []
    end_marked = processes.end_marked

    def note(mark: str) -> list[int]:
        marks.append(mark)
        return end_marked(mark)

    monkeypatch.setattr(processes, "end_marked", note)
    yield
    assert marks
    for mark in marks:
        assert _with_mark(mark) == []


def _with_mark(mark: str) -> list[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment:
            found.append(int(name))
    return found


def test_a_job_measures_and_leaves_nothing(tmp_path: Path, nothing_left: None) -> None:
    start_s = time.monotonic()
    with Job(_fake(), _SIZE, tmp_path) as fake:
        assert 0 <= fake.init_s < fake.first_op_s < time.monotonic() - start_s
        assert fake.can(_CASE)
        assert not fake.can(case_named("allreduce 4 B"))
        for part in ("gross", "baseline", "gross"):
            # Rank 1 sleeps 2 ms in each iteration, rank 0 only 1 ms.
            assert fake.measure(_CASE, part, _SECONDS) >= 0.002
        assert set(fake.memory()) == {"added by init", "now"}
        assert fake.usable
        with pytest.raises(ValueError, match="no part 'net'"):
            fake.measure(_CASE, "net", _SECONDS)


def test_ranks_that_are_idle_use_nothing(tmp_path: Path) -> None:
    with Job(_fake(), _SIZE, tmp_path) as fake:
        before_s, _ = processes.cpu_and_switches(fake.pids[0])
        cpu_s, switches = fake.idle(0.2)
        fake.measure(_CASE, "gross", _SECONDS)
        after_s, _ = processes.cpu_and_switches(fake.pids[0])
    assert 0 <= cpu_s < after_s - before_s
    assert switches >= 0


def test_a_wrong_result_is_seen_and_the_job_goes_on(tmp_path: Path, nothing_left: None) -> None:
    with Job(_fake("wrong"), _SIZE, tmp_path) as fake:
        with pytest.raises(WrongResult, match=r"tensor 0 on rank 1 of 2: element 0 is \d+.0, not"):
            fake.measure(_CASE, "gross", _SECONDS)
        assert fake.usable
        assert fake.measure(_CASE, "baseline", _SECONDS) > 0


def test_a_wrong_result_is_told_though_the_other_rank_waits_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr(crew, "_OTHERS_MAY_ANSWER_S", 0.2)
    with Job(_fake("wrong, the other hangs"), _SIZE, tmp_path) as fake:
        with pytest.raises(WrongResult, match=r"(?s)have not answered.*tensor 0 on rank 1 of 2"):
            fake.measure(_CASE, "gross", _SECONDS)
        assert not fake.usable


def test_an_error_is_no_wrong_result(tmp_path: Path, nothing_left: None) -> None:
    with Job(_fake("raise"), _SIZE, tmp_path) as fake:
        with pytest.raises(BenchError, match="something is missing") as caught:
            fake.measure(_CASE, "gross", _SECONDS)
        assert not isinstance(caught.value, WrongResult)
        assert fake.usable


def _variable(pid: int, name: str) -> str | None:
    for line in Path(f"/proc/{pid}/environ").read_text().split("\0"):
        if line.startswith(f"{name}="):
            return line[len(name) + 1 :]
    return None


_ADDED_BYTES = 64 << 20  # by the fakes' init


@pytest.mark.parametrize("kind", ["heap", "shared"])
def test_memory_is_what_a_rank_has_to_itself(kind: str, tmp_path: Path) -> None:
    with Job(_fake(f"{kind} memory"), _SIZE, tmp_path) as fake:
        memory = fake.memory()
    assert _ADDED_BYTES <= memory["added by init"] < 2 * _ADDED_BYTES
    assert memory["added by init"] < memory["now"] < 1 << 30


def test_memory_of_files_does_not_count(tmp_path: Path) -> None:
    with Job(_fake("mapped file"), _SIZE, tmp_path) as fake:
        assert fake.memory()["added by init"] < _ADDED_BYTES // 4


def test_a_kernel_that_does_not_tell_memory_keeps_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Job(_fake("no memory is told"), _SIZE, tmp_path) as fake:
        with pytest.raises(BenchError, match="smaps_rollup cannot be read here"):
            fake.memory()
        assert fake.usable
        assert fake.measure(_CASE, "gross", _SECONDS) > 0


def test_a_rank_that_dies_is_seen(tmp_path: Path, nothing_left: None) -> None:
    with Job(_fake("die"), _SIZE, tmp_path) as fake:
        with pytest.raises(BenchError, match=r"(?s)a rank has died; the status is -9.*last words"):
            fake.measure(_CASE, "gross", _SECONDS)
        assert not fake.usable
        with pytest.raises(BenchError, match="given up before: a rank has died"):
            fake.measure(_CASE, "baseline", _SECONDS)


def test_a_rank_that_dies_at_the_start_is_seen(tmp_path: Path, nothing_left: None) -> None:
    with pytest.raises(BenchError, match=r"(?s)a rank has died; the status is 7.*last words"):
        Job(_fake("die at init"), _SIZE, tmp_path)


def test_a_rank_that_cannot_start_is_seen(tmp_path: Path, nothing_left: None) -> None:
    missing = System("fake", "a fake", False, "tests.unit.no_such_module", "ours")
    with pytest.raises(BenchError, match="No module named"):
        Job(missing, _SIZE, tmp_path)


def test_an_interpreter_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setenv("BENCH_VENV", str(tmp_path / "nowhere"))
    with pytest.raises(BenchError, match=r"nowhere/bin/python does not start: .*No such file"):
        Job(_fake(), _SIZE, tmp_path)
    assert "run `make build`" in (usable(system_named("ours")) or "")


def test_a_rank_that_does_not_answer_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr(job, "_SLACK_S", 1.0)
    with Job(_fake("hang"), _SIZE, tmp_path) as fake:
        silent = fake.pids[1]
        with pytest.raises(BenchError) as caught:
            fake.measure(_CASE, "gross", _SECONDS)
        assert f"processes [{silent}] of 2 ranks have not answered 'check' gross" in str(
            caught.value
        )
        assert "bench_fake_backend.py" in str(caught.value)  # its stacks
        assert not fake.usable


def test_what_a_killed_rank_leaves_in_its_temporary_folder_is_removed(tmp_path: Path) -> None:
    with Job(_fake(), _SIZE, tmp_path) as fake:
        (folder,) = {Path(_variable(pid, "TMPDIR") or "/") for pid in fake.pids}
        (folder / "left by a rank").touch()
        os.kill(fake.pids[1], signal.SIGKILL)
    assert not folder.exists()


@pytest.mark.parametrize("fault", ["deaf", "orphan"])
def test_close_ends_what_does_not_end_by_itself(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr(crew, "_END_S", 0.5)
    Job(_fake(fault), _SIZE, tmp_path).close()


def test_a_launcher_of_a_broken_job_may_clear_away(tmp_path: Path, nothing_left: None) -> None:
    cleared = tmp_path / "cleared"
    with Job(_launched_fake(f"trap 'kill $!; echo > {cleared}; exit 1' TERM"), 1, tmp_path) as fake:
        fake.pause()
        assert not cleared.exists()
        fake._crew.failure("given up by the test")
    assert cleared.exists()


def test_a_launcher_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setattr(processes, "_IN_ORDER_S", 0.3)
    with Job(_launched_fake("trap '' TERM"), 1, tmp_path) as fake:
        fake._crew.failure("given up by the test")


class _Launched(System):
    """A fake of one rank, which a shell starts and waits for."""

    def command(self, size: int, exported: Mapping[str, str]) -> list[str]:
        rank = " ".join(super().command(size, exported))
        lines = f"{self.flags[0]}; {rank} & wait; wait; while :; do sleep 0.1; done"
        return ["/bin/sh", "-c", lines]


def _launched_fake(trap: str) -> System:
    backend = "tests.unit.bench_fake_backend"
    return _Launched("fake", "a fake", False, backend, "ours", flags=(trap,))


def test_close_ends_a_paused_job(tmp_path: Path, nothing_left: None) -> None:
    with Job(_fake(), _SIZE, tmp_path) as fake:
        fake.pause()


def test_pause_stops_and_resume_goes_on(tmp_path: Path) -> None:
    with Job(_fake(), _SIZE, tmp_path) as fake:
        fake.measure(_CASE, "gross", _SECONDS)
        fake.pause()
        assert [_state(pid) for pid in fake.pids] == ["T", "T"]
        with pytest.raises(RuntimeError, match="call resume"):
            fake.measure(_CASE, "gross", _SECONDS)
        fake.resume()
        assert fake.measure(_CASE, "gross", _SECONDS) > 0


def test_pause_says_who_does_not_stop(tmp_path: Path) -> None:
    with Job(_fake(), _SIZE, tmp_path) as fake:
        os.kill(fake.pids[1], signal.SIGKILL)
        with pytest.raises(BenchError, match="did not stop"):
            fake.pause()
        assert not fake.usable


_DRIVER = """
import sys, time
from pathlib import Path
from tests.bench.job import Job
from tests.unit.test_bench_job import _fake
fake = Job(_fake(), 2, Path(sys.argv[1]))
fake.pause()
print(*fake.pids, flush=True)
time.sleep(60)
"""


def test_a_driver_that_is_killed_leaves_no_stopped_rank(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _DRIVER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        pids = [int(pid) for pid in driver.stdout.readline().split()]
        assert [_state(pid) for pid in pids] == ["T", "T"]
        driver.kill()
    deadline_s = time.monotonic() + 20
    while set(map(_state, pids)) - {"", "Z"} and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not set(map(_state, pids)) - {"", "Z"}


def _state(pid: int) -> str:
    """The letter of its state; "" once it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _right(case: Case, part: str, rank: int, size: int) -> list[np.ndarray]:
    """By loops, from the definition of each collective."""
    ranks = range(size) if part == "gross" else [rank]
    every = [[2 * values.reshape(-1) for values in rank_values.inputs(case, r)] for r in ranks]
    at = list(ranks).index(rank)
    out = []
    for parts in zip(*every):
        share = parts[0].size // len(ranks)
        mine = slice(at * share, (at + 1) * share)
        out.append(
            {
                "allreduce": lambda parts, mine: np.sum(parts, axis=0),
                "broadcast": lambda parts, mine: parts[0],
                "allgather": lambda parts, mine: np.concatenate(parts),
                "alltoall": lambda parts, mine: np.concatenate([p[mine] for p in parts]),
                "reducescatter": lambda parts, mine: np.sum(parts, axis=0)[mine],
            }[case.collective](parts, mine)
        )
    return out


_SMALL = [
    Case(name, name, "session", "float32", ((40, 3), (1, 8)), "net", False)
    for name in ("allreduce", "broadcast", "allgather", "alltoall", "reducescatter")
]


@pytest.mark.parametrize("case", _SMALL, ids=lambda case: case.name)
@pytest.mark.parametrize("part", ["gross", "baseline"])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_right_results_pass_and_a_changed_element_does_not(
    case: Case, part: str, size: int
) -> None:
    rank = size - 1
    got = _right(case, part, rank, size)
    rank_values.check(case, part, rank, size, got, 2)
    got[1][0] += 1
    with pytest.raises(WrongResult, match=r"tensor 1 .* 1 of"):
        rank_values.check(case, part, rank, size, got, 2)
    with pytest.raises(WrongResult, match="elements, not"):
        rank_values.check(case, part, rank, size, [got[0], got[1][:-1]], 2)
    with pytest.raises(WrongResult, match="1 results, not 2"):
        rank_values.check(case, part, rank, size, got[:1], 2)


def test_inputs_differ_by_rank_and_tensor_and_sums_are_exact_in_bfloat16() -> None:
    case = _SMALL[0]
    seen = [rank_values.inputs(case, rank)[1].tobytes() for rank in range(8)]
    assert len(set(seen)) == 8
    first, second = (values.reshape(-1)[:8] for values in rank_values.inputs(case, 0))
    assert (first != second).all()
    assert max(rank_values.results(case, "gross", 0, 8, 0, 2)) <= 256


def test_a_large_tensor_is_the_small_one_over_and_over() -> None:
    count = (1 << 20) + 5
    large = Case("x", "allreduce", "session", "float32", ((count,),), "net", False)
    (values,) = rank_values.inputs(large, 1)
    assert values.shape == (count,)
    assert (values[13:] == values[:-13]).all() and len(set(values[:13])) == 13


def test_the_systems_have_names_of_their_own() -> None:
    assert len({system.name for system in SYSTEMS}) == len(SYSTEMS)
    with pytest.raises(ValueError, match="no system 'nccl'; there are: ours, "):
        system_named("nccl")


@pytest.mark.parametrize("name", ["mpi", "mpi-0.1ms"])
def test_mpirun_binds_no_rank_and_hands_the_variables_on(name: str) -> None:
    system = system_named(name)
    command = system.command(4, {"B": "2", "A": "1"})
    line = " ".join(command)
    assert line.startswith("mpirun -np 4 ") and "--bind-to none" in line
    assert " -x A -x B " in line
    assert line.endswith("-m tests.bench.rank_main tests.bench.rank_horovod")


def test_every_system_is_usable_or_says_why() -> None:
    for system in SYSTEMS:
        why = usable(system)
        assert why is None or ("; " in why or ": " in why), system.name


@pytest.mark.parametrize(
    ("variable", "left_out"),
    [("BENCH_PEER", {"gloo", "mpi", "mpi-0.1ms"}), ("BENCH_TORCH", {"torch"})],
)
def test_a_variable_leaves_systems_out(
    variable: str, left_out: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "0")
    whys = {system.name: usable(system) for system in SYSTEMS}
    assert {name for name, why in whys.items() if why == f"left out: {variable}=0"} == left_out


def test_every_case_is_known_by_its_name() -> None:
    assert [case_named(case.name) for case in CASES] == list(CASES)
    assert Path(__file__).parents[2] == systems.ROOT
