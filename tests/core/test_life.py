"""From init to the end: again and again, in order, badly, and where nobody is allowed to hang."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, byte_exchange, core
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet
from tests.core import client
from tests.harness.ranks import run_ranks

NOTICED_WITHIN_S = 5.0


def _works(name: str = "works") -> None:
    assert client.allreduce(np.float32(1), name).wait() == basics.size()


def _again_and_again() -> int:
    for _ in range(100):
        basics.init()
        basics.init()  # twice is once, while nobody has left
        assert basics.is_initialized()
        _works()
        basics.shutdown()
        basics.shutdown()
        assert not basics.is_initialized()
    with pytest.raises(ValueError, match="init"):
        basics.rank()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 2])
def test_a_hundred_generations_leave_no_descriptor(size: int) -> None:
    for left in run_ranks(_again_and_again, size, timeout_s=120):
        assert left < 15


def _error_of(action: Any) -> tuple[int, str, float]:
    begin_s = time.monotonic()
    try:
        action()
    except core.CoreError as error:
        return error.code, str(error), time.monotonic() - begin_s
    raise AssertionError("no error")


def _until_it_fails() -> tuple[int, str, float]:
    """Steps until one fails, as training does, and then once more."""

    last_s = time.monotonic()

    def steps() -> None:
        nonlocal last_s
        while True:
            client.allreduce(np.ones(300_000, "float32"), "gradient").wait()
            last_s = time.monotonic()

    code, text, _ = _error_of(steps)
    noticed_s = time.monotonic() - last_s
    again, _, _ = _error_of(lambda: client.allreduce(np.float32(1), "next"))
    assert again == code
    with pytest.raises(core.CoreError):
        core.check(core.load().hvd_failure(None, 0))
    return code, text, noticed_s


def _killed(how: str) -> Any:
    basics.init()
    _works()
    if basics.rank() == 1:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        # A data loader that lives on must not hide the death.
        if how == "forked" and os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    return _until_it_fails()


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("how", ["plain", "forked"])
def test_a_killed_rank_ends_the_others_by_name(size: int, how: str) -> None:
    results = run_ranks(_killed, size, how, may_die=[1])
    assert results[1] is None
    for rank, result in enumerate(results):
        if rank != 1:
            code, text, noticed_s = result
            assert code == core.PEER_LOST
            assert "rank 1 (host localhost)" in text and "'gradient'" in text
            assert noticed_s < NOTICED_WITHIN_S


# It waits before its end, since the others may still be in the last collective.
_LEAVER = """
import sys, time
from horovod.common import basics
from tests.core.test_life import _works
basics.init()
_works()
time.sleep(0.5)
{ending}
"""


def _one_leaves(ending: str) -> Any:
    if os.environ["HOROVOD_RANK"] == "1":
        # A program of its own: the harness would turn its end into another.
        os.execv(sys.executable, [sys.executable, "-c", _LEAVER.format(ending=ending)])
    basics.init()
    _works()
    return _error_of(lambda: client.allreduce(np.float32(1), "never").wait())


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize(
    ("ending", "code", "words"),
    [
        ("sys.exit(0)", core.SHUTDOWN, "ended in order"),
        ("pass", core.SHUTDOWN, "ended in order"),
        ("sys.exit(3)", core.PEER_LOST, "exit status 3"),
        ("raise RuntimeError('planned')", core.PEER_LOST, "exit status 1"),
        ("import os; os.abort()", core.PEER_LOST, "is lost"),
        ("import os; os._exit(0)", core.PEER_LOST, "is lost"),
    ],
)
def test_an_end_is_told_as_it_was(ending: str, code: int, words: str) -> None:
    results = run_ranks(_one_leaves, 3, ending, may_die=[1])
    for rank in (0, 2):
        got, text, seconds = results[rank]
        assert got == code, text
        assert words in text and "rank 1" in text
        assert seconds < NOTICED_WITHIN_S


def _stopped_for_a_while() -> bool:
    basics.init()
    _works()
    if basics.rank() == 1:
        me = os.getpid()
        subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -STOP {me}; sleep 3; kill -CONT {me}"])
    end_s = time.monotonic() + 6
    longest_s, before_s = 0.0, time.monotonic()
    while client.allreduce(np.float32(before_s < end_s), "step").wait() == basics.size():
        now_s = time.monotonic()
        longest_s, before_s = max(longest_s, now_s - before_s), now_s
    return longest_s > 2.0


@pytest.mark.usefixtures("transport")
def test_a_stopped_rank_is_slow_and_not_lost() -> None:
    assert run_ranks(_stopped_for_a_while, 2) == [True, True]


def _one_process_set() -> Any:
    pair = ProcessSet([2, 0])
    basics.init(process_sets=[pair])
    assert pair.process_set_id == 1 and pair.size() == 2
    if pair.included():
        total = client.allreduce(np.float32(basics.rank()), "x", process_set=1).wait()
        return pair.rank(), float(total)
    code, text, _ = _error_of(lambda: client.allreduce(np.float32(1), "x", process_set=1))
    assert "rank 1 is not in process set 1" in text
    return code


def test_a_process_set_has_its_own_ranks() -> None:
    assert run_ranks(_one_process_set, 3) == [(0, 2.0), 2, (1, 2.0)]


def _different_process_sets() -> str:
    sets = [ProcessSet([0, 1])] if os.environ["HOROVOD_RANK"] == "1" else None
    with pytest.raises(ValueError, match="must be the same") as error:
        basics.init(process_sets=sets)
    return str(error.value)


def test_ranks_that_pass_different_process_sets_are_told() -> None:
    first, second = run_ranks(_different_process_sets, 2)
    assert first == second and "[[0, 1]]" in first


def _forks() -> int:
    basics.init()
    _works()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if not basics.is_initialized():
                client.allreduce(np.float32(1), "from the child")
        except core.CoreError as error:
            status = 0 if "forked" in str(error) else 2
        # Not os._exit: the handlers of an ordinary end must stay silent, too.
        basics.shutdown()
        ctypes.CDLL(None).exit(status)
    status = os.waitpid(child, 0)[1]
    _works("after the child")
    return status


@pytest.mark.usefixtures("transport")
def test_a_forked_child_is_no_rank_and_its_end_is_no_goodbye() -> None:
    assert run_ranks(_forks, 2) == [0, 0]


def _gives_up() -> str:
    if os.environ["HOROVOD_RANK"] == "1":
        return ""
    with pytest.raises(HorovodInternalError) as error:
        basics.init()
    return str(error.value)


def test_a_rank_that_never_comes_is_named() -> None:
    text = run_ranks(_gives_up, 2, env={"HOROVOD_START_TIMEOUT_SECONDS": "1"})[0]
    assert "rank 1" in text and "HOROVOD_START_TIMEOUT_SECONDS" in text


def _child_of_no_rank() -> int:
    assert not basics.is_initialized()
    child = os.fork()
    if child == 0:
        basics.init()  # its parent is no rank, so it may be one itself
        ctypes.CDLL(None).exit(0 if basics.size() == 1 else 1)
    return os.waitpid(child, 0)[1]


def test_a_forked_child_of_no_rank_may_be_one() -> None:
    assert run_ranks(_child_of_no_rank, 1) == [0]


def _sets_of_two_generations() -> Any:
    first, second = ProcessSet([0]), ProcessSet([0, 1])
    basics.init(process_sets=[first])
    with pytest.raises(ValueError, match="first init"):
        basics.init(process_sets=[second])
    _works()  # nobody leaves before all have tried
    basics.shutdown()
    basics.init(process_sets=[second])
    code, _, _ = _error_of(lambda: client.allreduce(np.float32(1), "x", process_set=1))
    total = client.allreduce(np.float32(1), "x", process_set=2).wait()
    return first.process_set_id, second.process_set_id, code, float(total)


def test_the_number_of_a_process_set_is_not_used_again() -> None:
    assert run_ranks(_sets_of_two_generations, 2) == [(None, 2, core.INVALID_ARGUMENT, 2.0)] * 2


def _wrong_knob() -> str:
    with pytest.raises(ValueError, match="init") as error:
        basics.init()
    return str(error.value)


def test_a_wrong_knob_is_refused_before_the_ranks_meet() -> None:
    for text in run_ranks(_wrong_knob, 2, env={"HOROVOD_FUSION_THRESHOLD": "64MB"}):
        assert "HOROVOD_FUSION_THRESHOLD is '64MB'" in text


def _different_staging() -> str:
    if os.environ["HOROVOD_RANK"] == "1":
        os.environ["HOROVOD_STAGING_BYTES"] = "8192"
    with pytest.raises(ValueError, match="HOROVOD_STAGING_BYTES") as error:
        basics.init()
    return str(error.value)


@pytest.mark.usefixtures("transport")
def test_ranks_whose_blocks_would_differ_are_told() -> None:
    first, second = run_ranks(_different_staging, 2)
    assert first == second and "'8192'" in first


def _two_sets_of_different_sizes() -> bool:
    three, two = ProcessSet([0, 1, 2]), ProcessSet([0, 3])
    basics.init(process_sets=[three, two])
    for members in (three, two):
        if members.included():
            for n in (1500, 5000):
                result = client.allreduce(
                    np.ones(n, "float32"), f"x{n}", process_set=members.process_set_id or 0
                ).wait()
                assert (result == members.size()).all()
    return True


@pytest.mark.usefixtures("transport")
def test_blocks_do_not_depend_on_what_ran_before() -> None:
    small = {"HOROVOD_STAGING_BYTES": "4096"}
    assert run_ranks(_two_sets_of_different_sizes, 4, env=small) == [True] * 4


def _bad_reduction_on_rank_1() -> int:
    basics.init()
    code, text, _ = _error_of(
        lambda: client.Handle(
            0, np.float32(1), "x", reduce_op=99 if basics.rank() == 1 else 1
        ).wait()
    )
    assert "99" in text
    _works()
    return code


def test_a_request_that_cannot_even_be_sent_is_told_to_the_others() -> None:
    failed_precondition = 3
    assert run_ranks(_bad_reduction_on_rank_1, 2) == [failed_precondition, core.INVALID_ARGUMENT]


def _ends_while_a_thread_waits() -> None:
    basics.init()
    if basics.rank() == 0:
        call = partial(byte_exchange.broadcast_bytes, b"x", 0, "nobody comes", 0)
        threading.Thread(target=call, daemon=True).start()
    client.barrier().wait()


def test_a_process_ends_although_a_thread_of_it_waits() -> None:
    run_ranks(_ends_while_a_thread_waits, 2)
