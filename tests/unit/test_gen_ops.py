"""tools/gen_ops.py: the table of collectives in docs/ops.md is the one of the core."""

from __future__ import annotations

import pytest

from horovod.common import core
from horovod.common.reduce_ops import ReduceOp
from tests.core import client
from tools import gen_ops

ALLREDUCE = core.KINDS.index("allreduce")
BOOL = core.DTYPES.index("bool")


def test_the_document_has_the_table_of_the_core() -> None:
    text = gen_ops.table_in(gen_ops.DOCUMENT.read_text(), gen_ops.COLLECTIVES)
    assert text == gen_ops.collectives_table(), "run: .venv/bin/python -m tools.gen_ops"


def test_the_core_says_what_it_would_refuse() -> None:
    assert core.supports(ALLREDUCE, BOOL, ReduceOp.Sum) == (core.OK, "")
    code, text = core.supports(ALLREDUCE, BOOL, ReduceOp.Average)
    assert code == core.INVALID_ARGUMENT and "bool has no Average" in text
    code, text = core.supports(core.KINDS.index("broadcast"), BOOL, 0, grouped=True)
    assert code == core.INVALID_ARGUMENT and "1 tensors cannot be one request" in text
    assert core.supports(core.KINDS.index("barrier"), BOOL, 0) == (core.OK, "")
    for kind in ("join", "add_process_set", "remove_process_set"):
        assert core.supports(core.KINDS.index(kind), core.DTYPES.index("int32"), 0)[0] == core.OK
        assert core.supports(core.KINDS.index(kind), BOOL, 0)[0] == core.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "numbers",
    [
        (len(core.KINDS), 0, 0),
        (-1, 0, 0),
        (0, len(core.DTYPES), 0),
        (0, -1, 0),
        (0, 0, len(ReduceOp)),
        (0, 0, -1),
    ],
)
def test_there_are_no_other_numbers(numbers: tuple[int, int, int]) -> None:
    code, text = core.supports(*numbers)
    assert code == core.INVALID_ARGUMENT and "is not known" in text
    assert all(str(number) in text for number in numbers)


def test_the_names_of_dtypes_are_those_of_numpy() -> None:
    assert [str(dtype) for dtype in client.DTYPES] == list(core.DTYPES)


def test_each_answer_is_a_cell() -> None:
    def answer(kind: int, dtype: int, op: int, grouped: bool) -> tuple[int, str]:
        if kind == ALLREDUCE and dtype == BOOL and op == ReduceOp.Max:
            return core.INVALID_ARGUMENT, "allreduce 'x': so"
        if op == ReduceOp.Adasum:
            return core.UNIMPLEMENTED, "allreduce 'x': later: never"
        return core.OK, ""

    lines = gen_ops.collectives_table(answer).splitlines()
    assert "| allreduce | Max | yes | no (2) |" + " yes |" * 10 in lines
    assert "| allreduce | Adasum | yes |" + " not built (1) |" * 11 in lines
    assert "| broadcast |  | yes |" + " yes |" * 11 in lines
    assert lines[-2:] == ["1. later: never", "2. so"]


def test_a_group_of_some_dtypes_only_is_not_hidden() -> None:
    def answer(kind: int, dtype: int, op: int, grouped: bool) -> tuple[int, str]:
        return (core.INVALID_ARGUMENT, "x: y") if grouped and dtype == BOOL else (core.OK, "")

    with pytest.raises(ValueError, match="grouped_allreduce"):
        gen_ops.collectives_table(answer)


def test_only_what_is_between_the_markers_changes() -> None:
    document = "a\n<!-- x: written by tools/gen_ops.py -->\nold\n<!-- end -->\nb\n<!-- end -->\n"
    for text in ("", "new | \\1\n"):
        document = gen_ops.replaced(document, "x", text)
        assert gen_ops.table_in(document, "x") == text
        assert document.startswith("a\n<!-- x") and document.endswith("b\n<!-- end -->\n")
    with pytest.raises(ValueError, match="no markers of the table 'y'"):
        gen_ops.replaced(document, "y", "")
