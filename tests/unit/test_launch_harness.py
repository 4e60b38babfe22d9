"""The harness of the multi-process tests: what it returns, reports and leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from horovod.common.rendezvous import meet
from tests.harness.ranks import RankFailed, run_ranks


def _meets():
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    member = {
        "version": "1",
        "rank": rank,
        "size": size,
        "local_rank": rank,
        "local_size": size,
        "cross_rank": 0,
        "cross_size": 1,
        "hostname": "localhost",
        "endpoints": [],
        "host_id": "here",
        "pid": os.getpid(),
    }
    secret = bytes.fromhex(os.environ["HOROVOD_SECRET_KEY"])
    return len(meet(os.environ["HOROVOD_RENDEZVOUS_ADDR"], secret, member, 30).members)


@pytest.mark.parametrize("size", [1, 3])
def test_ranks_find_the_rendezvous_and_results_come_in_rank_order(size):
    assert run_ranks(_meets, size) == [size] * size


def _echo(word):
    return word, os.environ["HOROVOD_RANK"], os.environ["WORD"]


def test_arguments_and_environment_reach_every_rank():
    assert run_ranks(_echo, 2, "a", env={"WORD": "b"}) == [("a", "0", "b"), ("a", "1", "b")]


def _rank_1_raises():
    if os.environ["HOROVOD_RANK"] == "1":
        raise ValueError("the reason")


def test_a_rank_that_raises_is_reported_with_its_traceback():
    with pytest.raises(RankFailed, match=r"(?s)1 of 2 ranks.*rank 1: exit code 1.*the reason"):
        run_ranks(_rank_1_raises, 2)


def _rank_1_is_killed():
    if os.environ["HOROVOD_RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def test_death_fails_the_test_unless_it_may_die():
    assert run_ranks(_rank_1_is_killed, 2, may_die=[1]) == ["alive", None]
    with pytest.raises(RankFailed, match=r"rank 1: killed by SIGKILL"):
        run_ranks(_rank_1_is_killed, 2)


def _sleep_in_function_with_a_name():
    time.sleep(600)


def test_a_rank_past_its_time_shows_its_stack():
    with pytest.raises(RankFailed, match=r"(?s)ended by the harness.*in _sleep_in_function_with_a"):
        run_ranks(_sleep_in_function_with_a_name, 1, timeout_s=2)


def _leaves_a_child():
    code = "import time; time.sleep(600)"
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid


def test_nothing_is_left_behind():
    [pid] = run_ranks(_leaves_a_child, 1)
    deadline_s = time.monotonic() + 5
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < deadline_s:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":  # nobody reaps it, maybe
                return
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")


def _exits_badly_after_returning():
    import atexit

    atexit.register(os._exit, 3)


def test_a_bad_end_after_the_return_is_a_failure():
    with pytest.raises(RankFailed, match=r"the function returned; then: exit code 3"):
        run_ranks(_exits_badly_after_returning, 1)
