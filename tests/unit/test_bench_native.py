"""The benchmark's programs in C++: they run, see a wrong result, and leave nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench import core, instructions, limits, native
from tests.bench.command import output_of
from tests.bench.core import CASES, CoreCase, CoreRanks, case_named
from tests.bench.errors import BenchError, Unavailable, WrongResult

_EVERY_KIND = (
    "allreduce 4 B",
    "allreduce 1000 x 64 B",
    "allgather 1 MiB",
    "broadcast 1 MiB",
    "alltoall 1 MiB",
    "reducescatter 1 MiB",
)
_SIXTEEN_BITS = ("allreduce float16 16 MiB", "allreduce bfloat16 16 MiB")


def _small(name: str) -> CoreCase:
    """The case with tensors of a few elements; not a multiple of anything."""
    case = case_named(name)
    return CoreCase(case.name, case.kind, case.dtype, min(case.elements, 1003), case.tensors)


@pytest.fixture(scope="module", autouse=True)
def _built() -> None:
    try:
        native.program("core_rank")
    except Unavailable as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("transport", ["shm", "tcp"])
def test_cases_are_timed_on_two_ranks(transport: str) -> None:
    results = core.run(2, transport, 0.01, _EVERY_KIND)
    assert tuple(results) == _EVERY_KIND
    assert all(0 < seconds < 60 for seconds in results.values())


@pytest.mark.parametrize("size", [1, 3, 13])
def test_every_case_is_right_for_other_sizes(size: int) -> None:
    with CoreRanks(size, "auto") as ranks:
        for case in CASES:
            assert ranks.time(_small(case.name), 2) > 0
            ranks.repeat(_small(case.name), 2)


@pytest.mark.parametrize("name", [*_EVERY_KIND, *_SIXTEEN_BITS])
def test_a_wrong_result_is_an_error(name: str) -> None:
    wrong = pytest.raises(WrongResult, match=r"core_rank \d: wrong: .*element \d+ the bits 0x")
    with wrong, CoreRanks(2, "auto") as ranks:
        # Rank 1 has inputs that rank 0 does not expect, and the other way round.
        ranks.time(_small(name), 2, seeds=(0, 1))


def test_a_wrong_result_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    time = CoreRanks.time

    def wrong(ranks: CoreRanks, case: CoreCase, iterations: int) -> float:
        return time(ranks, case, iterations, seeds=(0, 1))

    monkeypatch.setattr(CoreRanks, "time", wrong)
    with pytest.raises(WrongResult, match="core_rank"):
        core.run(2, "auto", 0.01, ["allreduce 4 B"])


def test_a_rank_that_dies_is_an_error_and_none_is_left() -> None:
    # The survivor may say why before the dead one is asked, or the other way round.
    ended = pytest.raises(BenchError, match=r"core_rank 0: failed .*rank 1|core_rank 1: it has")
    with ended, CoreRanks(2, "auto") as ranks:
        pids = ranks.pids
        os.kill(pids[1], signal.SIGKILL)
        ranks.time(case_named("allreduce 4 B"), 1000)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_rank_that_does_not_answer_is_an_error_and_none_is_left() -> None:
    late = pytest.raises(BenchError, match="it did not answer in time")
    with late, CoreRanks(2, "auto", patience_s=0.5) as ranks:
        pids = ranks.pids
        os.kill(pids[1], signal.SIGSTOP)
        ranks.time(case_named("allreduce 4 B"), 1000)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_error_of_a_rank_that_cannot_start_is_shown() -> None:
    with pytest.raises(BenchError, match=r"HOROVOD_TRANSPORT.*pigeon"):
        core.run(1, "pigeon", 0.01, ["allreduce 4 B"])


def test_the_callers_knobs_do_not_reach_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_CACHE_CAPACITY", "many")  # a rank that saw it would refuse it
    assert core.run(1, "auto", 0.01, ["allreduce 4 B"])["allreduce 4 B"] > 0


def test_an_unknown_case_is_named() -> None:
    with pytest.raises(ValueError, match="no core case 'allreduce 5 B'; there are: allreduce 4 B"):
        core.run(1, "auto", 0.01, ["allreduce 5 B"])


def test_limits_are_plausible() -> None:
    assert 1e6 < limits.memcpy(0.1) < 1e13
    assert 1e-8 < limits.futex_ping_pong(0.1) < 1


@pytest.mark.parametrize("name", ["memcpy_pair", "futex_pair"])
@pytest.mark.parametrize("arguments", [[], ["0"], ["soon"], ["1", "1"]])
def test_a_bad_argument_is_refused(name: str, arguments: list[str]) -> None:
    with pytest.raises(BenchError, match="exit status 2: usage: "):
        output_of([str(native.program(name)), *arguments], 10)


def test_a_program_that_hangs_is_ended() -> None:
    with pytest.raises(BenchError, match=r"still running after 0\.1 s"):
        output_of([sys.executable, "-c", "import time; time.sleep(60)"], 0.1)


def test_a_program_that_is_not_there_is_an_error() -> None:
    with pytest.raises(BenchError, match=r"no-such-program 1: does not start: .*No such file"):
        output_of(["no-such-program", "1"], 10)


def test_a_missing_program_says_what_to_type() -> None:
    with pytest.raises(
        Unavailable, match=r"no_such is missing; type: bazel build //tests/bench/cc"
    ):
        native.program("no_such")


@pytest.mark.parametrize("measure", [limits.wire, instructions.count])
def test_a_missing_tool_is_unavailable(
    measure: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert callable(measure)
    with pytest.raises(Unavailable, match=r"no \w+ here; install Debian's package \w+"):
        measure()


def test_the_wire_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: f"/usr/bin/{tool}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="only root"):
        limits.wire()


@pytest.fixture
def fake_ip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Puts an `ip` first on the path that does nothing but note its arguments; the file of them.

    It fails at whatever is the word in its folder's file `fails`.
    """
    said = tmp_path / "said"
    (tmp_path / "fails").write_text("nothing")
    command = tmp_path / "ip"
    command.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {said}\nread word < {tmp_path}/fails\n'
        'case "$*" in *"$word"*) echo "$word is lost" >&2; exit 1;; esac\n'
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return said


@pytest.mark.parametrize("end", ["a", "b"])
def test_a_namespace_that_stays_keeps_not_the_other(fake_ip: Path, end: str) -> None:
    with pytest.raises(BenchError, match="is lost"), limits._two_namespaces() as names:
        lost = {"a": names[0], "b": names[1]}[end]
        fake_ip.with_name("fails").write_text(f"netns delete {lost}")
    deleted = [line.split()[2] for line in fake_ip.read_text().splitlines() if "delete" in line]
    assert deleted == list(names)


def test_no_right_to_make_a_namespace_is_unavailable(fake_ip: Path) -> None:
    fake_ip.with_name("fails").write_text("netns add")
    with pytest.raises(Unavailable, match="netns add is lost"), limits._two_namespaces():
        pass


def test_no_namespace_is_left() -> None:
    try:
        assert limits.wire(seconds=1) > 1e6
    except Unavailable as why:
        pytest.skip(str(why))
    names = subprocess.run(["ip", "netns"], check=True, capture_output=True, text=True).stdout
    assert f"bench-{os.getpid()}-" not in names


def test_iperf3s_result_is_what_the_receiver_got() -> None:
    result = {"end": {"sum_sent": {"bits_per_second": 9}, "sum_received": {"bits_per_second": 8e9}}}
    assert limits.received_bytes_per_s(json.dumps(result)) == 1e9


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ('{"end": {}, "error": "unable to connect"}', "iperf3: unable to connect"),
        ('{"end": {}}', "printed no result"),
        ("[]", "printed no result"),
        ("", "printed no result"),
    ],
)
def test_iperf3s_failure_is_an_error(output: str, text: str) -> None:
    with pytest.raises(BenchError, match=text):
        limits.received_bytes_per_s(output)


def _callgrind(function: str, total: int) -> str:
    return f"events: Ir\nfn=(1) {function}\n+1 {total}\ntotals: {total}\n"


_THREADS = [
    _callgrind("hvd_enqueue", 10),
    _callgrind("hvd::ControlLoop::Run()", 20),
    _callgrind("hvd::Executor::Run()", 40),
    _callgrind("hvd::Executor::RunGeneric(int)", 80),  # a thread that is none of the three
]


def test_callgrinds_files_are_known_by_their_functions() -> None:
    counts = {"caller": 10, "control thread": 20, "data thread": 40}
    assert instructions.parse(_THREADS) == counts
    assert instructions.parse(_THREADS[::-1]) == counts


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        (_THREADS[1:], "hvd_enqueue in 0 of 3 threads"),
        ([*_THREADS, _THREADS[2]], r"hvd::Executor::Run in 2 of 5 threads"),
        ([*_THREADS[:2], "fn=(1) hvd::Executor::Run()\n"], "no total for the data thread"),
    ],
)
def test_strange_files_of_callgrind_are_an_error(outputs: list[str], text: str) -> None:
    with pytest.raises(BenchError, match=text):
        instructions.parse(outputs)


def test_instructions_of_an_operation_do_not_grow_with_their_number() -> None:
    alone = instructions.JOBS[:1]
    try:
        few, many = instructions.count(100, alone), instructions.count(300, alone)
    except Unavailable as why:
        pytest.skip(str(why))
    threads = [f"1 rank, {name}" for name in ("caller", "control thread", "data thread")]
    assert list(few) == list(many) == ["1 rank", *threads]
    for row in few:
        assert 100 < few[row] < 1e6
        assert 0.8 < few[row] / many[row] < 1.25, row
    assert few["1 rank"] == pytest.approx(sum(few[row] for row in threads))


def test_a_job_of_two_is_counted_for_each_rank() -> None:
    try:
        rows = instructions.count(10, instructions.JOBS[1:2])
    except Unavailable as why:
        pytest.skip(str(why))
    assert [row for row in rows if "thread" not in row and "caller" not in row] == [
        "2 ranks shm, rank 0",
        "2 ranks shm, rank 1",
    ]


def test_negotiation_is_counted_and_a_rank_hears_few_others() -> None:
    text = output_of([str(native.program("negotiation")), "7", "2", "256"], 60.0)
    rows = [
        [cell.strip() for cell in line.strip("| \n").split("|")]
        for line in text.splitlines()
        if line.startswith("| ") and "ranks" not in line
    ]
    steady = {int(row[0]): [float(cell) for cell in row[3:]] for row in rows if row[2] == "steady"}
    assert sorted(steady) == [2, 4, 8, 16, 64, 256]
    for ranks, (frames, sent, cpu_us, others_frames, _, _, _) in steady.items():
        # A leader hears the other ranks of its host and at most eight leaders, and answers each.
        assert frames <= 2 * min(ranks - 1, 7 + 8) and others_frames <= 2 * (7 + 8 + 1)
        assert sent / frames < 400 and cpu_us > 0  # seven bits, not seven names
    assert steady[2][0] == 2.0
