"""Every cell of the table in docs/ops.md, on two ranks: right, or the error that it promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from horovod.common import basics, core
from horovod.common.reduce_ops import ReduceOp
from tests.core import client
from tests.core.reference import assert_reduced, of_rank, reduced, rows_kept
from tests.harness.ranks import run_ranks
from tools import gen_ops

SIZE = 2


def _rows() -> list[tuple[str, str, str, list[str]]]:
    """The rows of the document: collective, reduction, grouped, and a cell for each dtype."""
    text = gen_ops.table_in(gen_ops.DOCUMENT.read_text(), gen_ops.COLLECTIVES)
    header, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [name.strip() for name in header.split("|")[4:-1]] == list(core.DTYPES)
    rows = []
    for line in lines:
        kind, reduction, grouped, *cells = (cell.strip() for cell in line.split("|")[1:-1])
        rows.append((kind, reduction, grouped, cells))
    return rows


def _start(kind: str, op: ReduceOp | None, arrays: Any, grouped: bool) -> client.Handle:
    fields: dict[str, Any] = {"grouped": grouped}
    if op is not None:
        fields["op"] = op
    if kind == "broadcast":
        fields["root"] = 1
    start: Callable[..., client.Handle] = getattr(client, kind)
    return start(arrays, name="x", **fields)


def _result(kind: str, op: ReduceOp | None, everyone: list[Any]) -> Any:
    if op is not None:
        whole = reduced(op, everyone)
        return whole if kind == "allreduce" else rows_kept(whole, basics.rank(), SIZE)
    if kind == "broadcast":
        return everyone[1]
    if kind == "allgather":
        return np.concatenate(everyone)
    assert kind == "alltoall"
    return np.concatenate([rows_kept(array, basics.rank(), SIZE) for array in everyone])


def _run_cell(kind: str, reduction: str, dtype: int, cell: str, grouped: bool) -> None:
    what = (kind, reduction, core.DTYPES[dtype], grouped)
    op = ReduceOp[reduction] if reduction else None
    everyone = [of_rank(r, (6, 5), client.DTYPES[dtype], 1) for r in range(SIZE)]
    mine = everyone[basics.rank()]
    arrays = [mine, mine] if grouped else mine
    if cell == "yes":
        got = _start(kind, op, arrays, grouped).wait()
        for one in got if grouped else [got]:
            assert one.dtype == mine.dtype, what
            assert_reduced(one, _result(kind, op, everyone), what)
        return
    with pytest.raises(core.CoreError) as error:
        _start(kind, op, arrays, grouped).wait()
    assert gen_ops.ANSWERS[error.value.code] == cell.partition(" (")[0], (what, str(error.value))


def _every_cell() -> int:
    basics.init()
    assert basics.size() == SIZE
    cells = 0
    for kind, reduction, grouped, row in _rows():
        for dtype, cell in enumerate(row):
            _run_cell(kind, reduction, dtype, cell, False)
            _run_cell(kind, reduction, dtype, cell if grouped == "yes" else "no", True)
            cells += 1
    return cells


@pytest.mark.usefixtures("transport")
def test_every_cell_is_true() -> None:
    kinds = len(ReduceOp) * 2 + 3  # allreduce and reducescatter; allgather, broadcast, alltoall
    assert run_ranks(_every_cell, SIZE) == [kinds * len(core.DTYPES)] * SIZE
