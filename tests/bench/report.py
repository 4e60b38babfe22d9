"""The run as tables: for a terminal of 120 columns, and in Markdown.  Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench import tables, units
from tests.bench.record import OURS, Note, Record
from tests.bench.results import ENOUGH, JUDGED_SIZE, WIDE, Entry, Row, Spread, rows
from tests.bench.standing import paragraph, ratio_text

__all__ = ["Footnote", "footnotes", "markdown", "terminal"]

_COLLECTIVE = ("collective", "step")
_SIZES = "ranks"
_KEY = (
    "In brackets: what the middle half of the rounds spans, as a share of the median. An "
    f"exclamation mark: that is over {WIDE:.0%}, or in half of the rounds others used the CPUs."
)
_OTHERS = {
    "launch": "Launch",
    "idle": "Doing nothing: one initialised rank",
    "memory": "Memory of a rank that no file holds: its heap, its part of what ranks share",
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
        table = [head, *(_comparison(row, notes, _judged(record)) for row in compared)]
        title = "Ours and the best of the peer's configurations (* is what the ratio is of)"
        blocks += tables.blocks(title, table, keys=2)
    others = _other_sections(record, found, notes)
    systems = _all_systems(record, found, notes)
    for title, table in systems:
        blocks += tables.blocks(title, table, keys=2)
    for title, table in others:
        blocks += tables.blocks(title, table, keys=1)
    if systems or others:
        blocks.append("\n".join(textwrap.wrap(_KEY, tables.WIDTH)))
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
            *("best peer", "gross", "net", "lowest - highest"),
            *("ours / peer", "middle half of the rounds", "remarks"),
        )
        table = [head, *(_long_comparison(row, notes, _judged(record)) for row in compared)]
        blocks += ["### Ours and the best of the peer's configurations", tables.pipes(table)]
    blocks += ["### Who is who", tables.pipes(_systems(record), figures=False)]
    others = [*_all_systems(record, found, notes), *_other_sections(record, found, notes)]
    for title, table in others:
        blocks += [f"### {title}", tables.pipes(table)]
    if others:
        blocks.append(_KEY)
    if notes:
        blocks += ["### Remarks", "\n".join(f"- [{note.number}] {note.text}" for note in notes)]
    return "\n\n".join(blocks)


def footnotes(record: Record) -> list[Footnote]:
    """All notes as sentences; notes on several cases that say the same are one."""
    alike: dict[tuple[str, str, str, int], list[Note]] = {}
    for note in record.notes:
        text = _flat(note.text, 2000 if note.kind == "remark" else 300)
        alike.setdefault((note.system, note.kind, text, note.size), []).append(note)
    return [
        Footnote(number, _sentence(*key, [note.case for note in notes if note.case]), tuple(notes))
        for number, (key, notes) in enumerate(alike.items(), 1)
    ]


def _sentence(system: str, kind: str, text: str, size: int, cases: Sequence[str]) -> str:
    who = ", ".join(filter(None, (system, "; ".join(cases))))
    ranks = f" ({size} ranks)" if size not in (0, JUDGED_SIZE) else ""
    verbs = {"missing": "not measured: ", "failed": "failed: ", "wrong": "a wrong result: "}
    verb = verbs.get(kind, "")
    return f"{who}{ranks}: {verb}{text}" if who else f"{verb}{text}"


def _flat(text: str, most: int) -> str:
    """One line; of a long text its beginning and its end, where errors say what they are."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most // 2]} ... {line[-most // 2 :]}"


def _numbers(row: Row, notes: Sequence[Footnote], systems: Sequence[str]) -> str:
    """The footnotes to a row's case that are about some of the systems."""
    found = [row.entries[name] for name in systems if name in row.entries]
    about = {note for entry in found for note in entry.notes if note.case}
    return "".join(f"[{note.number}]" for note in notes if about.intersection(note.notes))


def _judged(record: Record) -> list[str]:
    """The systems of which a ratio is taken."""
    return [contestant.name for contestant in record.contestants if contestant.judged]


def _comparison(row: Row, notes: Sequence[Footnote], judged: Sequence[str]) -> tuple[str, ...]:
    unit = _unit(row)
    return (
        row.case,
        unit.name,
        *_gross_and_net(row, OURS, unit),
        _range(row.figure(OURS), unit),
        row.best or "",
        *_gross_and_net(row, row.best, unit),
        ratio_text(row.ratio),
        _doubts(row, notes, judged),
    )


def _long_comparison(row: Row, notes: Sequence[Footnote], judged: Sequence[str]) -> tuple[str, ...]:
    *before, ratio, doubts = _comparison(row, notes, judged)
    theirs = _range(row.figure(row.best), _unit(row)) if row.best else ""
    bold = f"**{ratio}**" if row.verdict in ("faster", "slower") and not row.noisy else ratio
    return (*before, theirs, bold, _by_round(row), doubts)


def _by_round(row: Row) -> str:
    if row.by_round is None:
        return ""
    return f"{ratio_text(row.by_round.first)} - {ratio_text(row.by_round.third)}"


def _gross_and_net(row: Row, system: str | None, unit: units.Unit) -> tuple[str, str]:
    """Both; the one that is judged has a star."""
    entry = row.entries.get(system) if system else None
    found = {"gross": entry.gross, "net": entry.net} if entry else {}
    gross, net = (
        units.in_unit(figure.median, unit) + ("*" if part == row.judged else "") if figure else ""
        for part, figure in (("gross", found.get("gross")), ("net", found.get("net")))
    )
    return gross, net


def _doubts(row: Row, notes: Sequence[Footnote], judged: Sequence[str]) -> str:
    doubts = f"noisy: {', '.join(row.doubts)}" if row.noisy else ", ".join(row.doubts)
    even = "even" if row.verdict == "even" else ""
    words = [even, "by gross" if row.net_is_lost else "", doubts]
    return " ".join(filter(None, ["; ".join(filter(None, words)), _numbers(row, notes, judged)]))


def _systems(record: Record) -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = [("system", "what", "compared with ours")]
    for contestant in record.contestants:
        judged = "is ours" if contestant.name == OURS else "yes" if contestant.judged else "no"
        lines.append((f"`{contestant.name}`", contestant.title, judged))
    return lines


def _all_systems(
    record: Record, found: Sequence[Row], notes: Sequence[Footnote]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    """For each number of ranks a table of gross / net of every system."""
    made = []
    for size in sorted({row.size for row in found if row.section in _COLLECTIVE}):
        these = [row for row in found if row.section in _COLLECTIVE and row.size == size]
        names = _present(record, these)
        lines: list[tuple[str, ...]] = [("case", "unit", *names)]
        for row in these:
            unit = _unit(row)
            cells = [
                " ".join(
                    filter(None, (_pair(row.entries[name], unit), _numbers(row, notes, [name])))
                )
                for name in names
            ]
            lines.append((row.case, unit.name, *cells))
        judged = "" if size == JUDGED_SIZE else ", not judged"
        made.append((f"All systems, {size} {_SIZES}{judged}: gross / net", lines))
    return made


def _other_sections(
    record: Record, found: Sequence[Row], notes: Sequence[Footnote]
) -> list[tuple[str, list[tuple[str, ...]]]]:
    made = []
    for section, title in _OTHERS.items():
        these = [row for row in found if row.section == section]
        if not these:
            continue
        names = _present(record, these)
        anybody = any("" in row.entries for row in these)
        ratios = any(row.ratio is not None or row.doubts for row in these)
        head = ("case", *names, *(["value"] if anybody else []),
                *(["best peer", "ratio", ""] if ratios else []))  # fmt: skip
        lines: list[tuple[str, ...]] = [head]
        for row in these:
            values = [*names, *([""] if anybody else [])]
            cells = [_alone(row, name) for name in values]
            if ratios:
                cells += [
                    row.best or "",
                    ratio_text(row.ratio),
                    _doubts(row, notes, _judged(record)),
                ]
            lines.append((row.case, *cells))
        made.append((title, lines))
    return made


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
        return f"{entry.gross.median:.0f} {_span(entry)}"
    return f"{units.one(entry.gross.median, row.unit)} {_span(entry)}"


def _span(entry: Entry) -> str:
    """How far the rounds lie apart, how many they are if few, and whether to doubt them."""
    assert entry.gross is not None
    few = f"n={entry.gross.count}" if entry.gross.count < ENOUGH else ""
    span = f"{entry.gross.relative:.0%}" if entry.gross.count > 1 else ""
    text = "once" if entry.gross.count == 1 else ", ".join(filter(None, (span, few)))
    return f"({text}{'!' if entry.noise else ''})"


def _unit(row: Row) -> units.Unit:
    """One for all figures of a row, so that they can be compared; by the smallest gross."""
    medians = [entry.gross.median for entry in row.entries.values() if entry.gross]
    return units.unit_for(min(medians, default=0.0), row.unit)


def _range(figure: Spread | None, unit: units.Unit) -> str:
    if figure is None:
        return ""
    return f"{units.in_unit(figure.low, unit)} - {units.in_unit(figure.high, unit)}"


def _pair(entry: Entry, unit: units.Unit) -> str:
    if entry.gross is None:
        return ""
    net = units.in_unit(entry.net.median, unit) if entry.net else "?"
    return f"{units.in_unit(entry.gross.median, unit)} / {net} {_span(entry)}"
