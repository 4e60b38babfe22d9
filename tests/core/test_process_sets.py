"""Process sets that are added and removed while the job runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core, process_sets
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from tests.core import client, hosts
from tests.core.joining import error_of, everybody
from tests.harness.ranks import run_ranks

INVALID_ARGUMENT, FAILED_PRECONDITION = 2, 3


def _sum_on(item: ProcessSet, name: str = "x") -> float:
    array = np.full(3, basics.rank() + 1.0)
    return float(client.allreduce(array, name, process_set=item.process_set_id).wait()[0])


def _id_of(item: ProcessSet) -> int:
    assert item.process_set_id is not None
    return item.process_set_id


def _text_of(call: Any) -> str:
    """Makes a call that is refused at once; returns the text."""
    with pytest.raises(core.CoreError) as error:
        call()
    assert error.value.code == INVALID_ARGUMENT
    return str(error.value)


def _come_and_go(per_host: int) -> list[int]:
    rank = hosts.init(per_host, "dynamic")
    numbers = []
    for _ in range(3):
        pair = add_process_set([2, 0])
        one = add_process_set(ProcessSet([1]))
        numbers += [pair.process_set_id, one.process_set_id]
        assert (pair.ranks, pair.size(), pair.included()) == ([0, 2], 2, rank != 1)
        for _ in range(3):  # in full, then by a bit
            if rank == 1:
                assert _sum_on(one) == 2.0
                text = _text_of(partial(client.allreduce, 1.0, "y", process_set=_id_of(pair)))
                assert "rank 1 is not in process set" in text
            else:
                assert pair.rank() == rank // 2
                assert _sum_on(pair) == 4.0
                rows = client.allgather(np.zeros(rank + 1), "rows", process_set=_id_of(pair))
                assert rows.wait().shape == (4,)
            everybody()
        assert remove_process_set(pair) is True
        assert pair.process_set_id is None
        with pytest.raises(ValueError, match="not known to the ranks"):
            pair.size()
        text = _text_of(partial(client.allreduce, 1.0, "y", process_set=numbers[-2]))
        assert "was removed" in text
        everybody()
        remove_process_set(one)
    return numbers


@pytest.mark.usefixtures("transport")
def test_sets_come_and_go() -> None:
    assert run_ranks(_come_and_go, 3, 3) == [[1, 2, 3, 4, 5, 6]] * 3


def test_sets_come_and_go_across_hosts() -> None:
    assert run_ranks(_come_and_go, 3, 1) == [[1, 2, 3, 4, 5, 6]] * 3


def _pending(per_host: int) -> list[tuple[int, str]]:
    rank = hosts.init(per_host, [ProcessSet([0, 1])])
    told = []
    for _ in range(2):
        pair = add_process_set([0, 2])
        if rank != 1:
            assert _sum_on(pair) == 4.0
        if rank == 0:  # one in full, and one by a bit
            waiting = [
                client.allreduce(np.ones(3), name, process_set=_id_of(pair)) for name in "xy"
            ]
        remove_process_set(pair)
        if rank == 0:
            told += [error_of(handle) for handle in waiting]
        everybody()
    return told


@pytest.mark.parametrize("per_host", [3, 1])  # shared memory, then TCP
def test_what_waits_on_a_removed_set_fails(per_host: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_DYNAMIC_PROCESS_SETS", "1")
    results = run_ranks(_pending, 3, per_host)
    assert [len(told) for told in results] == [4, 0, 0]
    for number, (code, text) in zip((2, 2, 3, 3), results[0]):
        assert code == FAILED_PRECONDITION
        assert f"process set {number} was removed meanwhile" in text


def _wrong_calls() -> list[str]:
    basics.init(process_sets="dynamic")
    rank = basics.rank()
    pair = add_process_set([0, 1])
    texts: list[str] = []

    def fails(call: Any) -> None:
        with pytest.raises(ValueError) as error:
            call()
        texts.append(str(error.value))
        everybody()

    fails(lambda: add_process_set([0, 1]))
    fails(lambda: add_process_set(range(3)))
    fails(lambda: add_process_set([0, 0]))
    fails(lambda: add_process_set([]))
    fails(lambda: add_process_set([-1]))
    fails(lambda: add_process_set([0, 3]))
    fails(lambda: add_process_set(pair))
    fails(lambda: add_process_set([0, 2**32 + 1]))
    fails(lambda: remove_process_set(global_process_set))
    fails(lambda: remove_process_set(ProcessSet([0, 2])))
    # One rank alone is wrong, or differs.
    fails(lambda: add_process_set([0, 9 if rank == 1 else 2]))
    fails(lambda: add_process_set([1 if rank == 1 else 0, 2]))
    fails(lambda: add_process_set([0, 2]) if rank != 1 else add_process_set([2, 2]))
    fails(lambda: add_process_set([1, 2]) if rank != 1 else add_process_set([0, 2]))
    fails(lambda: add_process_set([1, 2]) if rank != 1 else remove_process_set(pair))
    assert pair.process_set_id == 1
    remove_process_set(pair)
    again = add_process_set([0, 1])
    assert again.process_set_id == 2
    return texts


def test_wrong_calls_are_told_to_all_and_change_nothing() -> None:
    results = run_ranks(_wrong_calls, 3)
    words = [
        "process set 1 holds ranks 0, 1 already",
        "process set 0 holds ranks 0, 1, 2 already",
        "each once",
        "one or more",
        "from 0 up",
        "no rank 3",
        "is a set of this job already",
        "each once",
        "which stays",
        "not known to the ranks",
    ]
    for rank, texts in enumerate(results):
        for word, text in zip(words, texts):
            assert word in text, (rank, text)
        alone, differ, alone_too, other_set, other_kind = texts[len(words) :]
        assert "no rank 9" in alone
        assert "rank 1 sent the set of ranks 1, 2, rank 0 sent ranks 0, 2" in differ
        assert "each once" in alone_too
        assert "rank 1 sent the set of ranks 0, 2, rank 0 sent ranks 1, 2" in other_set
        assert "remove_process_set" in other_kind
        assert rank == 1 or ("rank 1" in alone and "rank 1" in alone_too)


def _odd_arguments() -> None:
    basics.init(process_sets="dynamic")
    for odd in (None, 5, "01", [None]):
        # One rank alone; the others are told.
        if basics.rank() == 1:
            with pytest.raises((NotImplementedError, ValueError)):
                add_process_set(odd)
        else:
            with pytest.raises(ValueError, match=r"rank 1 .*could not take part"):
                add_process_set([0, 1])
        everybody()


def test_what_is_no_list_of_ranks_is_told_to_the_others() -> None:
    run_ranks(_odd_arguments, 3)


def _interrupted() -> list[int | None]:
    """Ctrl-C on rank 0, before the others come and when they have."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored around the tests
    basics.init(process_sets="dynamic")
    if basics.rank() == 0:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            add_process_set([0, 1])
    else:
        with pytest.raises(ValueError, match="withdrew it"):
            time.sleep(2.0)
            add_process_set([0, 1])
    everybody()
    pair = add_process_set([0, 1])
    remove_process_set(pair)
    return [pair.process_set_id, process_sets.least_id()]


def test_an_interrupted_change_is_withdrawn() -> None:
    assert run_ranks(_interrupted, 3) == [[None, 2]] * 3


def _lost() -> str:
    basics.init(process_sets="dynamic")
    if basics.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(HorovodInternalError) as error:
        add_process_set([0, 1])
    return str(error.value)


def test_a_rank_that_dies_ends_the_wait_for_a_change() -> None:
    results = run_ranks(_lost, 3, may_die=[1])
    assert all("rank 1" in results[rank] for rank in (0, 2))


def _joined() -> str:
    basics.init(process_sets="dynamic")
    text = ""
    if basics.rank() != 1:
        with pytest.raises(ValueError) as error:
            add_process_set([0, 1])
        text = str(error.value)
    client.join().wait()
    add_process_set([0, 1])
    everybody()
    return text


def test_sets_do_not_change_without_a_rank_that_has_joined() -> None:
    results = run_ranks(_joined, 3)
    assert all("rank 1 (host localhost) has joined" in results[rank] for rank in (0, 2))


def _fixed() -> str:
    # Rank 0's sets may change, rank 1's may not.
    basics.init(process_sets="dynamic" if os.environ["HOROVOD_RANK"] == "0" else None)
    with pytest.raises(ValueError) as error:
        add_process_set([0])
    everybody()
    return str(error.value)


def test_sets_are_fixed_unless_asked_for() -> None:
    results = run_ranks(_fixed, 2)
    assert "HOROVOD_DYNAMIC_PROCESS_SETS=1" in results[1]
    assert "rank 1" in results[0] and "HOROVOD_DYNAMIC_PROCESS_SETS=1" in results[0]


def _threads() -> bool:
    """Overlapping sets, each used by a thread of its own."""
    basics.init(process_sets="dynamic")
    rank = basics.rank()
    sets = [add_process_set(ranks) for ranks in ([0, 1], [1, 2], [2, 0])]
    errors: list[BaseException] = []

    def use(item: ProcessSet) -> None:
        try:
            for i in range(200):
                array = np.full(1 + i * 7, rank + 1.0)
                total = client.allreduce(array, "x", process_set=_id_of(item)).wait()
                assert total.tolist() == [sum(r + 1.0 for r in item.ranks or [])] * len(array)
        except BaseException as error:  # also a failed assertion
            errors.append(error)

    threads = [threading.Thread(target=use, args=(item,)) for item in sets if item.included()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for item in sets:
        remove_process_set(item)
    return True


@pytest.mark.usefixtures("transport")
def test_overlapping_sets_in_threads_of_their_own() -> None:
    assert run_ranks(_threads, 3) == [True] * 3


def _generations() -> list[Any]:
    numbers = []
    for _ in range(2):
        basics.init(process_sets="dynamic")
        added = add_process_set([1])
        numbers.append(added.process_set_id)
        basics.shutdown()
    basics.init(process_sets=[ProcessSet([0])])
    numbers += [added.process_set_id, process_sets.least_id()]
    with pytest.raises(ValueError, match="fixed once init"):
        add_process_set([1])
    return numbers


def test_the_sets_of_a_generation_end_with_it() -> None:
    assert run_ranks(_generations, 2) == [[1, 2, None, 4]] * 2
