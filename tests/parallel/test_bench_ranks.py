"""The benchmark's rank program on the installed package, by the benchmark's own jobs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.bench import processes
from tests.bench.cases import CASES, case_named
from tests.bench.job import Job
from tests.bench.rank_backend import PARTS
from tests.bench.systems import system_named

_SIZE = 2
_SECONDS = 0.02
_OF_EACH_MODE = ("eager 4 B", "allreduce 4 B", "step transformer")


@pytest.fixture(autouse=True)
def this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_VENV", sys.prefix)


def test_ours_does_every_case_and_is_right(tmp_path: Path) -> None:
    with Job(system_named("ours"), _SIZE, tmp_path) as job:
        assert 0 < job.init_s < job.first_op_s
        assert [case.name for case in CASES if not job.can(case)] == []
        for name in _OF_EACH_MODE:
            for part in PARTS:
                # Its results are compared before and after.
                assert job.measure(case_named(name), part, _SECONDS) > 0, (name, part)
            job.pause()
            job.resume()
        memory = job.memory()
        cpu_s, _ = job.idle(0.2)
        pids = job.pids
    assert cpu_s >= 0
    assert 0 < memory["added by init"] < memory["now"] < 4 << 30
    assert processes.stop(pids) == sorted(pids)  # all have ended
