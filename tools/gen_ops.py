"""Writes the tables of docs/ops.md: which collectives there are, and the raw ops.

Both come from what is built: the core says what it would refuse, and TensorFlow what ops it has.
Run it with the package installed: `.venv/bin/python -m tools.gen_ops`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from horovod.common import core
from horovod.common.reduce_ops import ReduceOp

__all__ = [
    "ANSWERS",
    "COLLECTIVES",
    "DOCUMENT",
    "RAW_OPS",
    "collectives_table",
    "op_defs",
    "raw_ops_table",
    "replaced",
    "table_in",
]

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "ops.md"
COLLECTIVES, RAW_OPS = "collectives", "raw ops"  # the tables, as the document marks them

# What a cell says, by the core's code.
ANSWERS = {core.OK: "yes", core.INVALID_ARGUMENT: "no", core.UNIMPLEMENTED: "not built"}

# Those that carry a tensor of the caller's.
_KINDS = core.KINDS[: core.KINDS.index("barrier")]
_REDUCTIONS = ("allreduce", "reducescatter")

# Every collective has them; what they mean stands in the document.
_COMMON = ("ignore_name_scope", "process_set_id", "tensor_name", "gradient")

# Of the enumeration tensorflow.DataType, the names that are not those of NumPy.
_DTYPE_NAMES = {"half": "float16", "float": "float32", "double": "float64"}

Supports = Callable[[int, int, int, bool], "tuple[int, str]"]


def collectives_table(supports: Supports = core.supports) -> str:
    """Returns collective x reduction x dtype in Markdown, and why some are refused.

    Args:
      supports: answers as `core.supports` does.

    Raises:
      ValueError: a group is refused for some dtypes only, which the table cannot say.
    """
    lines = [
        "| collective | reduction | grouped | " + " | ".join(core.DTYPES) + " |",
        "|---|---|---|" + "---|" * len(core.DTYPES),
    ]
    reasons: dict[str, int] = {}
    for kind in _KINDS:
        for op in ReduceOp if kind in _REDUCTIONS else [None]:
            cells = []
            for dtype in range(len(core.DTYPES)):
                code, text = supports(core.KINDS.index(kind), dtype, int(op or 0), False)
                note = ""
                if code != core.OK:
                    reason = text.partition(": ")[2]
                    note = f" ({reasons.setdefault(reason, len(reasons) + 1)})"
                cells.append(ANSWERS[code] + note)
            grouped = _grouped(supports, kind, int(op or 0))
            reduction = op.name if op is not None else ""
            lines.append(f"| {kind} | {reduction} | {grouped} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{number}. {reason}" for reason, number in reasons.items())]
    return "\n".join(lines) + "\n"


def _grouped(supports: Supports, kind: str, op: int) -> str:
    number = core.KINDS.index(kind)
    alone = [supports(number, dtype, op, False)[0] for dtype in range(len(core.DTYPES))]
    group = [supports(number, dtype, op, True)[0] for dtype in range(len(core.DTYPES))]
    if group == alone:
        return "yes"
    if core.OK in group:
        raise ValueError(f"grouped_{kind}: {group} for the dtypes, and {alone} without a group")
    return "no"


def op_defs() -> list[Any]:
    """Returns the OpDef of every op of the library, by name.  Loads TensorFlow."""
    from tensorflow.python.framework import op_def_registry

    from horovod.tensorflow import _ops

    names = [name for name in dir(_ops.library()) if name.startswith("Horovod")]
    return [definition for name in names if (definition := op_def_registry.get(name)) is not None]


def raw_ops_table(definitions: Iterable[Any]) -> str:
    """Returns op, inputs, outputs and attributes in Markdown, and the element types.

    Raises:
      ValueError: two ops have a `T` of different types, which the table cannot say.
    """
    lines = ["| op | inputs | outputs | attributes |", "|---|---|---|---|"]
    types: set[str] = set()
    for definition in definitions:
        attributes = [a for a in definition.attr if a.name not in (*_COMMON, "T")]
        texts = [f"`{_attribute(a)}`" for a in attributes]
        if all(name in [a.name for a in definition.attr] for name in _COMMON):
            texts.append("common")
        else:
            texts += [f"`{_attribute(a)}`" for a in definition.attr if a.name in _COMMON]
        types |= {_types(a) for a in definition.attr if a.name == "T"}
        inputs, outputs = (
            ", ".join(f"`{_argument(arg)}`" for arg in args)
            for args in (definition.input_arg, definition.output_arg)
        )
        cells = (f"`{definition.name}`", inputs, outputs, ", ".join(texts))
        lines.append("| " + " | ".join(cells) + " |")
    if len(types) != 1:
        raise ValueError(f"T has {len(types)} sets of types: {sorted(types)}")
    return "\n".join([*lines, "", f"`T` is one of {types.pop()}."]) + "\n"


def _dtype_name(number: int) -> str:
    from tensorflow.core.framework import types_pb2

    name: str = types_pb2.DataType.Name(number).removeprefix("DT_").lower()
    return _DTYPE_NAMES.get(name, name)


def _types(attribute: Any) -> str:
    return ", ".join(_dtype_name(number) for number in attribute.allowed_values.list.type)


def _argument(argument: Any) -> str:
    kind = argument.type_attr or _dtype_name(argument.type)
    times = f"{argument.number_attr} * " if argument.number_attr else ""
    reference = f"Ref({kind})" if argument.is_ref else kind
    return f"{argument.name}: {times}{reference}"


def _attribute(attribute: Any) -> str:
    text = f"{attribute.name}: {attribute.type}"
    if attribute.has_minimum:
        text += f" >= {attribute.minimum}"
    if not attribute.HasField("default_value"):
        return text
    value = attribute.default_value
    default = {"bool": str(value.b).lower(), "int": value.i, "string": f'"{value.s.decode()}"'}
    return f"{text} = {default[attribute.type]}"


def _pattern(table: str) -> re.Pattern[str]:
    begin = re.escape(f"<!-- {table}: written by tools/gen_ops.py -->\n")
    return re.compile(f"(?<={begin}).*?(?=<!-- end -->)", re.DOTALL)


def table_in(document: str, table: str) -> str:
    """Returns what stands between the markers of a table.

    Raises:
      ValueError: the document does not have them.
    """
    found = _pattern(table).search(document)
    if found is None:
        raise ValueError(f"{DOCUMENT.name} has no markers of the table '{table}'")
    return found.group()


def replaced(document: str, table: str, text: str) -> str:
    """Returns the document with `text` between the markers of a table.

    Raises:
      ValueError: the document does not have them.
    """
    table_in(document, table)
    return _pattern(table).sub(lambda _: text, document, count=1)


def main() -> None:
    """Writes both tables into the document."""
    text = DOCUMENT.read_text()
    text = replaced(text, COLLECTIVES, collectives_table())
    text = replaced(text, RAW_OPS, raw_ops_table(op_defs()))
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
