"""The harness of `make test-faults`: what it draws, what it finds wrong, and the table."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horovod.common import core
from tests.faults import table
from tests.faults.__main__ import main
from tests.faults.catalog import FAULTS, Fault, Trial, draw, fault_named
from tests.faults.judge import BOUND_S, Observation, judge
from tests.faults.rank_main import STEPS_AFTER
from tests.faults.remains import descriptors, remains, remains_of_child

_FAULT_S = 10.0
_VICTIM = 1
_SIZE = 3


def _event(name: str, at_s: float, generation: int = 0, **fields: Any) -> dict[str, Any]:
    return {"event": name, "at_s": at_s, "generation": generation, **fields}


def _steps(from_s: float, generation: int = 0) -> list[dict[str, Any]]:
    count = STEPS_AFTER
    return [_event("step", from_s + 0.01 * (i + 1), generation) for i in range(count)]


def _good(name: str) -> Observation:
    """A trial as it should be: rank 1 of 3, the fault 10 s after the clock's start."""
    fault = fault_named(name)
    trial = Trial(
        label=f"tcp/{name}/0",
        transport="tcp",
        fault=fault,
        size=_SIZE,
        victim=_VICTIM,
        in_init=False,
        delay_s=1.0,
        stopped_s=2.0,
        rejoins=name == "caught",
    )
    text = f"allreduce 'x': rank {_VICTIM} (host localhost) {fault.seen_as}"
    code = core.SHUTDOWN if fault.orderly else core.PEER_LOST
    events: list[list[dict[str, Any]]] = []
    for rank in range(_SIZE):
        mine = [_event("initialized", 7.0), *_steps(7.5)]
        if fault.seen_as is None:
            mine += _steps(_FAULT_S)
        elif rank != _VICTIM:
            mine.append(_event("raised", _FAULT_S + 0.1, code=code, text=text))
        if rank != _VICTIM or fault.victim_status is None:
            mine.append(_event("left", _FAULT_S + 0.2, remains=[]))
        if trial.rejoins:
            mine += [_event("initialized", 11.0, 1), *_steps(11.0, 1)]
        events.append(mine)
    statuses: list[int | None] = [0] * _SIZE
    statuses[_VICTIM] = fault.victim_status or 0
    return Observation(trial, None, _FAULT_S, events, statuses, {_VICTIM: _FAULT_S + 0.1})


def _raised(seen: Observation, rank: int = 2) -> dict[str, Any]:
    return seen.of(rank, "raised")[0]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_trial_as_it_should_be_has_no_complaint(fault: Fault) -> None:
    verdict = judge(_good(fault.name))
    assert verdict.complaints == []
    assert not verdict.in_init
    survivors = _SIZE if fault.seen_as is None else _SIZE - 1
    assert len(verdict.seconds) == survivors
    assert all(0 < seconds < 0.2 for seconds in verdict.seconds)


_PLANTED: list[tuple[str, Callable[[Observation], Any], str]] = [
    ("kill", lambda s: _raised(s).update(at_s=_FAULT_S + BOUND_S + 0.1), "the bound is 2 s"),
    ("kill", lambda s: _raised(s).update(at_s=_FAULT_S - 0.1), "before the fault"),
    ("kill", lambda s: _raised(s).update(text="rank 0 is lost"), "does not say 'rank 1"),
    ("kill", lambda s: _raised(s).update(text="rank 11 is lost"), "does not say 'rank 1"),
    ("kill", lambda s: _raised(s).update(text="rank 1 ended in order"), "is lost"),
    ("kill", lambda s: _raised(s).update(code=core.SHUTDOWN), "got code"),
    ("kill", lambda s: s.events[2].remove(_raised(s)), "raised 0 times"),
    ("kill", lambda s: s.statuses.__setitem__(2, 1), "rank 2 ended with status 1"),
    ("kill", lambda s: s.statuses.__setitem__(1, 0), "rank 1 ended with status 0, not -9"),
    ("kill", lambda s: s.left.append("process 7"), "left behind: process 7"),
    ("kill", lambda s: s.of(0, "left")[0]["remains"].append("fd"), "left behind: rank 0: fd"),
    ("exit0", lambda s: _raised(s).update(code=core.PEER_LOST), "got code"),
    ("exit0", lambda s: s.ended_s.update({1: _FAULT_S + 2.1}), "took 2.10 s to end"),
    ("exit3", lambda s: _raised(s).update(text="rank 1 ended in order"), "exit status 3"),
    ("stop", lambda s: s.events[0].append(_event("raised", 9.0, text="lost")), "raised: lost"),
    ("stop", lambda s: s.events[0].remove(s.of(0, "step")[-1]), "4 steps after SIGCONT"),
    ("caught", lambda s: s.events[0].pop(), "4 steps after the second init()"),
    ("caught", lambda s: s.events[0].append(_event("raised", 12.0, 1, text="t")), "second init()"),
]


@pytest.mark.parametrize(("name", "plant", "words"), _PLANTED)
def test_a_planted_fault_is_found(
    name: str, plant: Callable[[Observation], Any], words: str
) -> None:
    seen = _good(name)
    plant(seen)
    complaints = judge(seen).complaints
    assert len(complaints) == 1 and words in complaints[0], complaints


def test_what_did_not_come_in_time_is_the_complaint() -> None:
    seen = dataclasses.replace(_good("kill"), problem="ranks [0] still run")
    assert judge(seen).complaints == ["ranks [0] still run"]


def test_a_survivor_may_be_told_of_another_that_has_left_because_of_the_victim() -> None:
    seen = _good("exit0")
    _raised(seen, 2).update(text="rank 0 (host localhost) ended in order")
    assert len(judge(seen).complaints) == 1  # rank 0 raised no earlier than rank 2
    _raised(seen, 0).update(at_s=_FAULT_S + 0.05)
    assert judge(seen).complaints == []


def test_during_init_the_bound_is_the_same_and_the_victim_is_named() -> None:
    seen = _good("kill")
    seen.events[0].remove(seen.of(0, "initialized")[0])
    text = "init: waited for rank 1"
    for rank in (0, 2):
        _raised(seen, rank).update(text=text, code=None, at_s=_FAULT_S + BOUND_S)
    verdict = judge(seen)
    assert verdict.in_init and verdict.complaints == []
    _raised(seen).update(text="init: waited for rank 0")
    assert len(judge(seen).complaints) == 1
    _raised(seen).update(text="rank 1 ended in order", code=core.SHUTDOWN)
    assert "takes it for an orderly end" in judge(seen).complaints[0]


def test_slack_widens_the_bounds() -> None:
    seen = _good("kill")
    _raised(seen).update(at_s=_FAULT_S + 3 * BOUND_S)
    assert len(judge(seen).complaints) == 1
    assert judge(seen, slack=5.0).complaints == []


def test_a_seed_draws_the_same_trials_and_another_one_others() -> None:
    def some(seed: int) -> list[Trial]:
        return [draw(seed, "tcp", fault, n) for fault in FAULTS for n in range(20)]

    first = some(1)
    assert first == some(1)
    assert first != some(2)
    assert {trial.size for trial in first} == {2, 3, 4}
    assert all(0 <= trial.victim < trial.size for trial in first)
    assert any(trial.victim == 0 for trial in first)
    assert any(trial.in_init for trial in first)
    assert not any(trial.in_init for trial in first if not trial.fault.in_init)
    rejoining = {trial.fault.name for trial in first if trial.rejoins}
    assert rejoining == {"stop", "caught"}


def test_an_unknown_fault_is_named_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match="no fault 'flood'; there are: kill, stop"):
        fault_named("flood")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "tcp/flood"], "no fault 'flood'"),
        (["--only", "tcp/kill/x"], "'x'"),
        (["--only", "tcp", "--write-docs"], "not allowed with"),
        (["--quick", "--write-docs"], "not allowed with"),
    ],
)
def test_a_wrong_call_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert words in capsys.readouterr().err


def test_the_table_counts_and_takes_the_worst() -> None:
    seen = _good("kill")
    quick = table.Result(seen.trial, judge(seen), 0)
    _raised(seen).update(at_s=_FAULT_S + 1.5)
    slow = table.Result(seen.trial, judge(seen), 2)
    lines = table.table([quick, slow]).splitlines()
    assert lines[2:] == ["| `kill -9` | tcp | 2 | 4 | 100 ms | 1.5 s | 0 |  | 2 |"]


def test_the_table_takes_its_place_in_the_document() -> None:
    document = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    assert table.replaced(document, "new") == (
        f"before\n{table.BEGIN}\n\nnew\n\n{table.END}\nafter\n"
    )
    with pytest.raises(ValueError, match="lacks"):
        table.replaced("no markers", "new")


def test_the_document_has_the_markers() -> None:
    document = (Path(__file__).parents[2] / "docs/reliability.md").read_text()
    assert table.replaced(document, "x") != document


_KEEPS_A_MEMFD = """
import json, mmap, os, sys
from tests.faults.remains import descriptors, remains
before = descriptors("self")
fd = os.memfd_create("planted")
os.ftruncate(fd, 4096)
kept = mmap.mmap(fd, 4096)
if sys.argv[1] == "mapping":
    os.close(fd)
    del fd
print(json.dumps(remains("self", before)))
"""


@pytest.mark.parametrize("kept", ["descriptor", "mapping"])
def test_a_memfd_that_remains_is_seen(kept: str) -> None:
    command = [sys.executable, "-c", _KEEPS_A_MEMFD, kept]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "memfd:planted" in output


_CHILD_CLOSES_LATE = """
import os, time
reader, writer = os.pipe()
print(flush=True)
time.sleep(0.3)
os.close(reader)
os.close(writer)
time.sleep(60)
"""


def test_a_child_that_has_not_run_yet_is_waited_for() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD_CLOSES_LATE], stdout=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            now = descriptors(str(child.pid))
            before = [what for what in now if now.count(what) == 1]  # without the two ends
            assert remains_of_child(child.pid, before) == []
        finally:
            child.kill()


def test_a_pipe_that_remains_is_seen() -> None:
    before = descriptors("self")
    reader, writer = os.pipe()
    try:
        left = remains("self", before)
    finally:
        os.close(reader)
        os.close(writer)
    assert len(left) == 2 and left[0].startswith("pipe:")
    assert remains("self", before) == []
