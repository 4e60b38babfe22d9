"""The run as tables: for a terminal of 120 columns, and in Markdown.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench import units
from tests.bench.record import OURS, Note, Record
from tests.bench.results import JUDGED_SIZE, Entry, Row, Spread, rows
from tests.bench.standing import paragraph, ratio_text

__all__ = ["Footnote", "footnotes", "markdown", "terminal"]

_COLLECTIVE = ("collective", "step")
_SIZES = "ranks"
_OTHERS = {
    "launch": "Launch",
    "idle": "Doing nothing: one initialised rank",
    "memory": "Memory of a rank (proportional set size)",
    "core": "The core alone, without TensorFlow",
    "instructions": "Instructions of the core for an operation",
    "limit": "What the machine allows",
}


@dataclass(frozen=True)
class Footnote:
    """A sentence on one or more notes, by whose number the tables refer to it."""

    number: int
    text: str
    notes: tuple[Note, ...]


def terminal(record: Record) -> str:
    """All of a run, to be printed."""
    found, notes = rows(record), footnotes(record)
    compared = [row for row in found if row.section in _COLLECTIVE and row.size == JUDGED_SIZE]
    blocks = []
    if compared:
        head = (
            "case",
            "unit",
            "ours: gross",
            "net",
            "spread",
            "best peer",
            "gross",
            "net",
            "ratio",
            "",
        )
        table = [head, *(_comparison(row, notes) for row in compared)]
        blocks.append(
            _block(
                "Ours and the best of the peer's configurations (* is what the ratio is of)", table
            )
        )
    for title, table in _all_systems(record, found, notes):
        blocks.append(_block(title, table))
    for title, table in _other_sections(record, found, notes):
        blocks.append(_block(title, table))
    blocks.append("\n".join(["Remarks", *(f"[{note.number}] {note.text}" for note in notes)])
                  if notes else "")  # fmt: skip
    blocks.append(paragraph(record))
    return "\n\n".join(filter(None, blocks))


def markdown(record: Record) -> str:
    """All of a run, for a document."""
    found, notes = rows(record), footnotes(record)
    compared = [row for row in found if row.section in _COLLECTIVE and row.size == JUDGED_SIZE]
    blocks = [paragraph(record)]
    if compared:
        head = (
            *("case", "unit", "ours: gross", "net", "lowest - highest"),
            *("best peer", "gross", "net", "lowest - highest", "ours / peer", "remarks"),
        )
        table = [head, *(_long_comparison(row, notes) for row in compared)]
        blocks += ["### Ours and the best of the peer's configurations", _pipes(table)]
    for title, table in [
        *_all_systems(record, found, notes),
        *_other_sections(record, found, notes),
    ]:
        blocks += [f"### {title}", _pipes(table)]
    if notes:
        blocks += ["### Remarks", "\n".join(f"- [{note.number}] {note.text}" for note in notes)]
    return "\n\n".join(blocks)


def footnotes(record: Record) -> list[Footnote]:
    """All notes as sentences; notes on several cases that say the same are one."""
    alike: dict[tuple[str, str, str, int], list[Note]] = {}
    for note in record.notes:
        alike.setdefault((note.system, note.kind, _flat(note.text), note.size), []).append(note)
    return [
        Footnote(number, _sentence(*key, [note.case for note in notes if note.case]), tuple(notes))
        for number, (key, notes) in enumerate(alike.items(), 1)
    ]


def _sentence(system: str, kind: str, text: str, size: int, cases: Sequence[str]) -> str:
    who = ", ".join(filter(None, (system, "; ".join(cases))))
    ranks = f" ({size} ranks)" if size not in (0, JUDGED_SIZE) else ""
    verb = {"missing": "not measured: ", "failed": "failed: "}.get(kind, "")
    return f"{who}{ranks}: {verb}{text}" if who else f"{verb}{text}"


def _flat(text: str, most: int = 300) -> str:
    """One line; of a long text its beginning and its end, where errors say what they are."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


def _numbers(row: Row, notes: Sequence[Footnote], system: str | None = None) -> str:
    """The footnotes to a row's case, or to one system in it."""
    entries = [row.entries[system]] if system else row.entries.values()
    about = {note for entry in entries for note in entry.notes if note.case}
    return "".join(f"[{note.number}]" for note in notes if about.intersection(note.notes))


def _comparison(row: Row, notes: Sequence[Footnote]) -> tuple[str, ...]:
    unit = _unit(row)
    return (
        row.case,
        unit.name,
        *_gross_and_net(row, OURS, unit),
        _range(row.figure(OURS), unit),
        row.best or "",
        *_gross_and_net(row, row.best, unit),
        ratio_text(row.ratio),
        _doubts(row, notes),
    )


def _long_comparison(row: Row, notes: Sequence[Footnote]) -> tuple[str, ...]:
    *before, ratio, doubts = _comparison(row, notes)
    theirs = _range(row.figure(row.best), _unit(row)) if row.best else ""
    bold = f"**{ratio}**" if ratio and not row.noisy else ratio
    return (*before, theirs, bold, doubts)


def _gross_and_net(row: Row, system: str | None, unit: units.Unit) -> tuple[str, str]:
    """Both; the one that is judged has a star."""
    entry = row.entries.get(system) if system else None
    found = {"gross": entry.gross, "net": entry.net} if entry else {}
    gross, net = (
        units.in_unit(figure.median, unit) + ("*" if part == row.judged else "") if figure else ""
        for part, figure in (("gross", found.get("gross")), ("net", found.get("net")))
    )
    return gross, net


def _doubts(row: Row, notes: Sequence[Footnote]) -> str:
    doubts = f"noisy: {', '.join(row.doubts)}" if row.noisy else ", ".join(row.doubts)
    words = ["by gross" if row.net_is_lost else "", doubts]
    return " ".join(filter(None, ["; ".join(filter(None, words)), _numbers(row, notes)]))


def _all_systems(
    record: Record, found: Sequence[Row], notes: Sequence[Footnote]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """For each number of ranks a table of gross / net of every system."""
    tables = []
    for size in sorted({row.size for row in found if row.section in _COLLECTIVE}):
        these = [row for row in found if row.section in _COLLECTIVE and row.size == size]
        names = _present(record, these)
        lines: list[tuple[str, ...]] = [("case", "unit", *names)]
        for row in these:
            unit = _unit(row)
            cells = [_pair(row.entries.get(name), unit) or _numbers(row, notes, name)
                     for name in names]  # fmt: skip
            lines.append((row.case, unit.name, *cells))
        judged = "" if size == JUDGED_SIZE else ", not judged"
        tables.append((f"All systems, {size} {_SIZES}{judged}: gross / net", lines))
    return tables


def _other_sections(
    record: Record, found: Sequence[Row], notes: Sequence[Footnote]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    tables = []
    for section, title in _OTHERS.items():
        these = [row for row in found if row.section == section]
        if not these:
            continue
        names = _present(record, these)
        anybody = any("" in row.entries for row in these)
        ratios = any(row.ratio is not None for row in these)
        head = ("case", *names, *(["value"] if anybody else []),
                *(["best peer", "ratio", ""] if ratios else []))  # fmt: skip
        lines: list[tuple[str, ...]] = [head]
        for row in these:
            values = [*names, *([""] if anybody else [])]
            cells = [_alone(row, name) for name in values]
            if ratios:
                cells += [row.best or "", ratio_text(row.ratio), _doubts(row, notes)]
            lines.append((row.case, *cells))
        tables.append((title, lines))
    return tables


def _present(record: Record, found: Sequence[Row]) -> list[str]:
    """The systems with a figure, or a note on a case, in any of the rows."""
    known = [contestant.name for contestant in record.contestants]
    return [
        name
        for name in known
        if any(
            (entry := row.entries.get(name)) is not None
            and (entry.gross or any(note.case for note in entry.notes))
            for row in found
        )
    ]


def _alone(row: Row, system: str) -> str:
    entry = row.entries.get(system)
    if entry is None or entry.gross is None:
        return ""
    if row.unit == "instructions":
        return f"{entry.gross.median:,.0f}"
    if row.unit == "switches":
        return f"{entry.gross.median:.0f}"
    return units.one(entry.gross.median, row.unit)


def _unit(row: Row) -> units.Unit:
    """One for all figures of a row, so that they can be compared; by the smallest gross."""
    medians = [entry.gross.median for entry in row.entries.values() if entry.gross]
    return units.unit_for(min(medians, default=0.0), row.unit)


def _range(figure: Spread | None, unit: units.Unit) -> str:
    if figure is None:
        return ""
    return f"{units.in_unit(figure.low, unit)} - {units.in_unit(figure.high, unit)}"


def _pair(entry: Entry | None, unit: units.Unit) -> str:
    if entry is None or entry.gross is None:
        return ""
    net = units.in_unit(entry.net.median, unit) if entry.net else "?"
    return f"{units.in_unit(entry.gross.median, unit)} / {net}"


def _block(title: str, table: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = []
    for number, line in enumerate(table):
        cells = [cell.ljust(width) if place == 0 or place == len(line) - 1 else cell.rjust(width)
                 for place, (cell, width) in enumerate(zip(line, widths))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
        if number == 0:
            lines.append("-" * min(120, sum(widths) + 2 * (len(widths) - 1)))
    return "\n".join([title, *lines])


def _pipes(table: Sequence[Sequence[str]]) -> str:
    head, *body = table
    rule = ["---"] + ["---:"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))
