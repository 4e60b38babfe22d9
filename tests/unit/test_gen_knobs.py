"""tools/gen_knobs.py: every form that a row of config.def may have, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.gen_knobs import BadTable, Knob, LaterKnob, Table, parse, to_markdown, to_python

ROOT = Path(__file__).parents[2]

TABLE = """
// HVD_KNOB(in_a_comment, "HOROVOD_NO", INT64, 0, 0, 0, "", "")
HVD_KNOB(port, "HOROVOD_PORT", INT, 0, 0, 65'535, "", "A port, or 0 (any).")
HVD_KNOB(size_bytes, "HOROVOD_SIZE_BYTES", INT64, 64LL,
         0x10, 128ull, "bytes",
         "Two "
         "lines, one | bar.")
HVD_KNOB(wait_s, "HOROVOD_WAIT", DOUBLE, 2.5, 0, 1e3, "s", "A \\"quoted\\" word.")
HVD_KNOB(loud, "HOROVOD_LOUD", BOOL, true, 0, 1, "", "Whether.")
HVD_KNOB(level, "HOROVOD_LEVEL", STRING, "warning", 0, 0, "", "Which.")
HVD_KNOB_LATER("HOROVOD_SOON", "what comes")
"""

WANT = Table(
    knobs=(
        Knob("port", "HOROVOD_PORT", "INT", 0, 0, 65535, "", "A port, or 0 (any)."),
        Knob(
            *("size_bytes", "HOROVOD_SIZE_BYTES", "INT64", 64, 16, 128, "bytes"),
            "Two lines, one | bar.",
        ),
        Knob("wait_s", "HOROVOD_WAIT", "DOUBLE", 2.5, 0.0, 1000.0, "s", 'A "quoted" word.'),
        Knob("loud", "HOROVOD_LOUD", "BOOL", True, 0, 1, "", "Whether."),
        Knob("level", "HOROVOD_LEVEL", "STRING", "warning", 0, 0, "", "Which."),
    ),
    later=(LaterKnob("HOROVOD_SOON", "what comes"),),
)


def test_reads_every_form_of_a_row():
    assert parse(TABLE) == WANT


def test_module_holds_the_same_rows_and_types():
    module = {}
    exec(to_python(WANT), module)
    assert [tuple(knob) for knob in module["KNOBS"]] == [tuple(knob) for knob in WANT.knobs]
    assert [tuple(row) for row in module["LATER"]] == [tuple(row) for row in WANT.later]
    assert module["KNOBS"][0]._fields == Knob._fields
    assert [type(knob.default) for knob in module["KNOBS"]] == [int, int, float, bool, str]
    assert set(module["__all__"]) <= set(module)


def test_markdown_has_a_line_for_each_row():
    lines = to_markdown(WANT).splitlines()
    size = "| `HOROVOD_SIZE_BYTES` | 64 | 16 to 128 | bytes | Two lines, one \\| bar. |"
    assert size in lines
    assert '| `HOROVOD_WAIT` | 2.5 | 0 to 1000 | s | A "quoted" word. |' in lines
    assert "| `HOROVOD_LOUD` | true |  |  | Whether. |" in lines
    assert "| `HOROVOD_SOON` | what comes |" in lines


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ('HVD_KNOB(a, "A", INT, 1, 0, 9, "")', "line 1"),
        ('\n\nHVD_KNOB(a, "A", INT, 1, 0, 9, "", "h"', "line 3.*parenthesis"),
        ('HVD_KNOB(a, "A", FLOAT, 1, 0, 9, "", "h")', "type FLOAT"),
        ('HVD_KNOB(a, "A", INT, 10, 0, 9, "", "h")', r"default 10 is not in \[0, 9\]"),
        ('HVD_KNOB(a, "A", INT, 1.5, 0, 9, "", "h")', "1.5"),
        ('HVD_KNOB(a, "A", BOOL, 1, 0, 1, "", "h")', "neither true nor false"),
        ('HVD_KNOB(a, "A", STRING, x, 0, 0, "", "h")', "line 1"),
        ('HVD_KNOB(a, A, INT, 1, 0, 9, "", "h")', "line 1"),
        (
            'HVD_KNOB(a, "A", INT, 1, 0, 9, "", "h")\nHVD_KNOB_LATER("A", "h")',
            "more than one row: A",
        ),
    ],
)
def test_refuses_a_row_that_does_not_fit(rows, why):
    with pytest.raises(BadTable, match=why):
        parse(rows)


def test_reads_the_real_table():
    text = (ROOT / "tf_ops" / "base" / "config.def").read_text()
    table = parse(text)
    # Counted another way, so that no row can be skipped in silence.
    rows = [line for line in text.splitlines() if line.startswith("HVD_KNOB")]
    assert len(table.knobs) + len(table.later) == len(rows)
    assert all(row.env.startswith("HOROVOD_") for row in (*table.knobs, *table.later))
