"""alltoall over N processes: equal, uneven and empty parts, and splits that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from tests.core import client, hosts
from tests.core.reference import of_rank
from tests.harness.ranks import run_ranks

FAILED_PRECONDITION = 3

# How many rows each rank (down) has for each other (across), by the number of ranks.
MATRICES: dict[str, Callable[[int], Any]] = {
    "equal": lambda n: np.full((n, n), 3),
    "uneven": lambda n: np.fromfunction(lambda i, j: (3 * i + 5 * j) % 4, (n, n)),
    "one sends nothing": lambda n: np.where(np.arange(n)[:, None] == n - 1, 0, 2) * np.ones(n),
    "one gets nothing": lambda n: np.where(np.arange(n)[None, :] == 0, 0, 2) * np.ones((n, 1)),
    "all empty": lambda n: np.zeros((n, n)),
    "to itself alone": lambda n: np.diag(np.arange(n) + 1),
    "to the next alone": lambda n: np.roll(np.eye(n), 1, axis=1) * 5,
    "large": lambda n: np.fromfunction(lambda i, j: 1000 * i + 700 * j, (n, n)),
}


def _exchange(matrix: Any, row: tuple[int, ...], dtype: Any, name: str, splits: bool) -> None:
    rank, size = basics.rank(), basics.size()
    matrix = matrix.astype(int)
    everyone = [of_rank(r, (int(matrix[r].sum()), *row), dtype, len(name)) for r in range(size)]
    given = [int(n) for n in matrix[rank]] if splits else None
    handle = client.alltoall(everyone[rank], name, given)
    got = handle.wait()
    parts = [np.split(everyone[r], np.cumsum(matrix[r])[:-1])[rank] for r in range(size)]
    want = np.concatenate(parts)
    assert got.dtype == dtype and got.shape == want.shape, (name, got.shape, want.shape)
    assert got.tobytes() == want.tobytes(), name
    assert handle.received_splits == [int(n) for n in matrix[:, rank]], name


def _check_everything(per_host: int) -> None:
    hosts.init(per_host)
    size = basics.size()
    for dtype in client.DTYPES:
        _exchange(MATRICES["uneven"](size), (2,), dtype, f"of {dtype}", True)
    for what, matrix in MATRICES.items():
        for row in [(), (3, 2), (0,)]:
            _exchange(matrix(size), row, np.dtype("float32"), f"{what}{row}", True)
    for rows in (0, 1, 5):
        _exchange(np.full((size, size), rows), (2,), np.dtype("int16"), f"{rows} each", False)
    # One name, so that it is cached, with splits that change from call to call.
    for step in range(20):
        changed = np.random.default_rng(step).integers(0, 4, (size, size))
        _exchange(changed, (3,), np.dtype("int64"), "changes", True)


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize("size", [1, 3, 4])
def test_every_part_goes_where_it_belongs(size: int) -> None:
    run_ranks(_check_everything, size, size)


def test_between_hosts() -> None:
    run_ranks(_check_everything, 4, 2)


def _of_one_rank(shape: tuple[int, ...], splits: list[int] | None) -> tuple[int, str, list[int]]:
    """Rank 0 is wrong, the others are not: each rank's code, text, and the next one's result."""
    basics.init()
    size = basics.size()
    with pytest.raises(core.CoreError) as error:
        if basics.rank() == 0:
            client.alltoall(np.zeros(shape, np.int32), "x", splits).wait()
        else:
            client.alltoall(np.zeros((size, 2), np.int32), "x", [1] * size).wait()
    mine = np.full(size, basics.rank(), np.int32)
    return error.value.code, str(error.value), client.alltoall(mine, "x").wait().tolist()


@pytest.mark.usefixtures("transport")
@pytest.mark.parametrize(
    ("shape", "splits", "words"),
    [
        ((), [0, 0, 0], "a scalar has no rows to send"),
        ((), None, "a scalar has no rows to send"),
        ((3, 2), [1, 2], "are 2 numbers, but process set 0 has 3 ranks"),
        ((3, 2), [1, 2, 0, 0], "are 4 numbers, but process set 0 has 3 ranks"),
        ((3, 2), [4, -1, 0], "[4, -1, 0]"),
        ((3, 2), [-1, 4, 0], "hold -1; none may be negative"),
        ((3, 2), [1, 1, 2], "are more than the 3 rows"),
        ((3, 2), [1, 1, 0], "are less than the 3 rows"),
        ((3, 2), [2**31 - 1] * 3, "are more than the 3 rows"),
        ((4, 2), None, "4 rows cannot be divided evenly among 3 ranks; give splits"),
    ],
    ids=str,
)
def test_wrong_splits(shape: tuple[int, ...], splits: list[int] | None, words: str) -> None:
    results = run_ranks(_of_one_rank, 3, shape, splits)
    for rank, (code, text, after) in enumerate(results):
        assert code == (FAILED_PRECONDITION if rank else core.INVALID_ARGUMENT), text
        assert words in text and "alltoall 'x'" in text
        assert rank == 0 or "rank 0" in text
        assert after == [0, 1, 2]


def _disagree() -> tuple[int, str]:
    basics.init()
    rank, size = basics.rank(), basics.size()
    with pytest.raises(core.CoreError) as error:
        client.alltoall(np.zeros((size, 2 + rank), np.int32), "x").wait()
    return error.value.code, str(error.value)


@pytest.mark.usefixtures("transport")
def test_rows_that_differ() -> None:
    for code, text in run_ranks(_disagree, 2):
        assert code == FAILED_PRECONDITION
        assert "rank 1 sent shape [2, 3], rank 0 sent [2, 2]" in text


def _more_rows_than_an_int32() -> tuple[int, str]:
    basics.init()
    with pytest.raises(core.CoreError) as error:
        # Rows of nothing, so that it takes no memory.
        client.alltoall(np.zeros((2**32, 0), np.uint8), "x").wait()
    return error.value.code, str(error.value)


def test_more_rows_than_received_splits_can_say() -> None:
    for code, text in run_ranks(_more_rows_than_an_int32, 2):
        assert code == core.INVALID_ARGUMENT and "2147483647" in text
