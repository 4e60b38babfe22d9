"""The job that runs programs sees what never ends, and goes on with new ranks."""

from __future__ import annotations

import os
import signal

import pytest

from tests.harness.ranks import RankFailed
from tests.programs.draw import from_choices
from tests.programs.job import Job

ALLREDUCE = from_choices(2, [0])


@pytest.mark.parametrize(
    ("number", "words"),
    [(signal.SIGSTOP, "rank 0: still running after 5 s"), (signal.SIGKILL, "rank 1: the process")],
    ids=["hang", "death"],
)
def test_a_planted_fault_is_seen_and_the_next_program_gets_new_ranks(
    number: signal.Signals, words: str
) -> None:
    with Job(2, "shm", deadline_s=5.0) as job:
        assert job.run(ALLREDUCE) == []
        before = job.pids
        os.kill(before[1], number)
        with pytest.raises(RankFailed, match=words):
            job.run(ALLREDUCE)
        assert not any(os.path.exists(f"/proc/{pid}") for pid in before)
        assert job.run(ALLREDUCE) == []
        assert not set(before) & set(job.pids)


def test_memory_of_each_rank_is_known() -> None:
    with Job(2, "tcp") as job:
        sizes = job.rss_bytes()
        assert len(sizes) == 2
        assert all(2**20 < size < 2**33 for size in sizes)
