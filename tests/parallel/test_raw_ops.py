"""The raw ops in docs/ops.md are those that TensorFlow sees in the op library."""

from __future__ import annotations

import pytest
import tensorflow as tf

from horovod.tensorflow import op_library_path
from tools import gen_ops


def test_the_document_has_the_ops_of_the_library() -> None:
    text = gen_ops.table_in(gen_ops.DOCUMENT.read_text(), gen_ops.RAW_OPS)
    assert text == gen_ops.raw_ops_table(gen_ops.op_defs()), (
        "run: .venv/bin/python -m tools.gen_ops"
    )


def test_a_program_finds_each_of_them_in_the_library_it_loads_itself() -> None:
    library = tf.load_op_library(op_library_path())
    names = [definition.name for definition in gen_ops.op_defs()]
    assert "HorovodAllreduce" in names
    for name in names:
        assert callable(getattr(library, name)), name


def test_attributes_are_shown_with_what_they_allow() -> None:
    [definition] = [d for d in gen_ops.op_defs() if d.name == "HorovodGroupedAllreduce"]
    line = gen_ops.raw_ops_table([definition]).splitlines()[2]
    assert line == (
        "| `HorovodGroupedAllreduce` | `tensors: num_tensors * T` | `sum: num_tensors * T` | "
        "`reduce_op: int`, `prescale_factor: float`, `postscale_factor: float`, "
        '`wire_dtype: string = ""`, `num_tensors: int >= 1`, `num_others: int >= 0 = 0`, common |'
    )


def test_two_sets_of_types_are_not_hidden() -> None:
    definitions = [type(d).FromString(d.SerializeToString()) for d in gen_ops.op_defs()]
    [allreduce] = [d for d in definitions if d.name == "HorovodAllreduce"]
    [types] = [a for a in allreduce.attr if a.name == "T"]
    del types.allowed_values.list.type[0]
    with pytest.raises(ValueError, match="T has 2 sets of types"):
        gen_ops.raw_ops_table(definitions)
