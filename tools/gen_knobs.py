"""Turns tf_ops/base/config.def, the one table of knobs, into a Python module or a Markdown table.

The launcher makes its flags from the module and loads no shared object. The module is written
while the package is staged, and never committed.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Union

Value = Union[bool, int, float, str]


class Knob(NamedTuple):
    """A setting. Numbers are in `unit` and the bounds inclusive; a string has no bounds."""

    id: str
    env: str
    type: str
    default: Value
    minimum: Value
    maximum: Value
    unit: str
    help: str


class LaterKnob(NamedTuple):
    """A variable that programs set and that does nothing yet."""

    env: str
    what: str


class Table(NamedTuple):
    """All rows of config.def, in its order."""

    knobs: tuple[Knob, ...]
    later: tuple[LaterKnob, ...]


class BadTable(ValueError):
    """config.def cannot be read; the text says which line and why."""


_ROW = re.compile(r"^(HVD_KNOB|HVD_KNOB_LATER)\(", re.MULTILINE)
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def _arguments(text: str, start: int) -> list[str]:
    """Splits the arguments of a macro call; `start` is just after its opening parenthesis."""
    arguments, current, position = [], "", start
    while position < len(text):
        if literal := _STRING.match(text, position):
            current += literal.group()
            position = literal.end()
            continue
        if text[position] in ",)":
            arguments.append(current.strip())
            current = ""
            if text[position] == ")":
                return arguments
        else:
            current += text[position]
        position += 1
    raise ValueError("the row has no closing parenthesis")


def _string(text: str) -> str:
    value = ast.literal_eval(f"({text})")  # joins adjacent strings, as C++ does
    if not isinstance(value, str):
        raise ValueError(f"{text} is not a string")
    return value


def _bool(text: str) -> bool:
    if text not in ("false", "true"):
        raise ValueError(f"{text} is neither true nor false")
    return text == "true"


def _int(text: str) -> int:
    return int(re.sub(r"[uU]?[lL]{0,2}$", "", text.replace("'", "")), 0)


_READERS: dict[str, Callable[[str], Value]] = {
    "BOOL": _bool,
    "INT": _int,
    "INT64": _int,
    "DOUBLE": float,
    "STRING": _string,
}


def _knob(arguments: list[str]) -> Knob:
    name, env, kind, default, minimum, maximum, unit, help_ = arguments
    if kind not in _READERS:
        raise ValueError(f"type {kind} is none of {', '.join(_READERS)}")
    read = _READERS[kind]
    read_bound = _int if kind in ("BOOL", "STRING") else read
    knob = Knob(
        id=name,
        env=_string(env),
        type=kind,
        default=read(default),
        minimum=read_bound(minimum),
        maximum=read_bound(maximum),
        unit=_string(unit),
        help=_string(help_),
    )
    if kind not in ("BOOL", "STRING") and not knob.minimum <= knob.default <= knob.maximum:  # type: ignore[operator]
        raise ValueError(f"default {knob.default} is not in [{knob.minimum}, {knob.maximum}]")
    return knob


def parse(text: str) -> Table:
    """Reads config.def.

    Args:
        text: the file, whole.

    Returns:
        Its rows.

    Raises:
        BadTable: a row has the wrong number of arguments, an unknown type, or a value that is not
            of its type or out of bounds; or an id or a variable stands in two rows.
    """
    text = re.sub(r"^[ \t]*//.*$", "", text, flags=re.MULTILINE)
    knobs: list[Knob] = []
    later: list[LaterKnob] = []
    for match in _ROW.finditer(text):
        try:
            arguments = _arguments(text, match.end())
            if match.group(1) == "HVD_KNOB":
                knobs.append(_knob(arguments))
            else:
                env, what = arguments
                later.append(LaterKnob(_string(env), _string(what)))
        except (SyntaxError, ValueError) as error:
            line = text.count("\n", 0, match.start()) + 1
            raise BadTable(f"config.def, line {line}: {error}") from error
    names = [k.id for k in knobs] + [k.env for k in knobs] + [row.env for row in later]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BadTable(f"config.def: in more than one row: {', '.join(twice)}")
    return Table(tuple(knobs), tuple(later))


def to_python(table: Table) -> str:
    """Returns the source of horovod.common._knobs."""
    parts = [
        '"""The knobs of tf_ops/base/config.def. Written by tools/gen_knobs.py; do not edit."""\n',
        "from __future__ import annotations\n",
        "from typing import NamedTuple, Union\n",
        '__all__ = ["KNOBS", "LATER", "Knob", "LaterKnob"]\n',
        "Value = Union[bool, int, float, str]\n\n",
        inspect.getsource(Knob) + "\n",
        inspect.getsource(LaterKnob) + "\n",
        "KNOBS: tuple[Knob, ...] = (",
        *(f"    {knob!r}," for knob in table.knobs),
        ")\n",
        "LATER: tuple[LaterKnob, ...] = (",
        *(f"    {row!r}," for row in table.later),
        ")",
    ]
    return "\n".join(parts) + "\n"


def to_markdown(table: Table) -> str:
    """Returns the tables of docs/knobs.md."""
    lines = ["| variable | default | range | unit | meaning |", "|---|---|---|---|---|"]
    for knob in table.knobs:
        if knob.type in ("BOOL", "STRING"):
            default, bounds = str(knob.default).lower(), ""
        else:
            default, bounds = f"{knob.default:.15g}", f"{knob.minimum:.15g} to {knob.maximum:.15g}"
        meaning = knob.help.replace("|", "\\|")
        lines.append(f"| `{knob.env}` | {default} | {bounds} | {knob.unit} | {meaning} |")
    lines += ["", "Known to programs, not built yet; setting one warns once:", ""]
    lines += ["| variable | of |", "|---|---|"]
    lines += [f"| `{row.env}` | {row.what} |" for row in table.later]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints the Python module, or with --markdown the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parents[1] / "tf_ops" / "base" / "config.def"
    parser.add_argument("table", type=Path, nargs="?", default=default)
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/knobs.md")
    args = parser.parse_args()
    table = parse(args.table.read_text())
    print(to_markdown(table) if args.markdown else to_python(table), end="")


if __name__ == "__main__":
    main()
