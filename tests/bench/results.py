"""From samples to rows: medians, spreads, nets, ratios, and what is to be doubted.  Pure.

The net of a round is its gross less its baseline, which were taken one right after the other; the
net of a row is the median of its rounds' nets.  A ratio is ours over the best configuration of the
peer, so below 1 is faster.  It is a ratio of medians; the ratios of the single rounds only say
whether it means anything: where their middle half lies on both sides of 1, the row is even.  All of
it holds for figures of which less is better.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.bench.record import OURS, Note, Record
from tests.bench.samples import Sample

__all__ = ["BUSY_CPUS", "ENOUGH", "JUDGED_SIZE", "WIDE", "Entry", "Row", "Spread", "rows", "spread"]

BUSY_CPUS = 0.3  # foreign ones, from which on a sample counts as disturbed
JUDGED_SIZE = 2  # ranks; more than the cores of a small machine say little
WIDE = 0.3  # the middle half of the samples spans more than this, relative to their median: noisy
ENOUGH = 3  # samples, below which a spread says nothing
_LEAST_NET = 0.2  # of gross; of less than this, the noise of two large figures is the better part
_COMPARED = ("collective", "step", "launch", "idle", "memory")
_MORE_IS_BETTER = ("B/s",)


@dataclass(frozen=True)
class Spread:
    """What a few values of the same thing look like.

    Attributes:
      median, low, high: of all values.
      first, third: quartiles; the value itself if there is only one.
      count: of values, >= 1.
    """

    median: float
    low: float
    high: float
    first: float
    third: float
    count: int

    @property
    def quartiles(self) -> float:
        """What the middle half of the values spans; 0 for fewer than two values."""
        return self.third - self.first

    @property
    def relative(self) -> float:
        """The same as a share of the median; 0 if that is not above zero."""
        return self.quartiles / self.median if self.median > 0 else 0.0


@dataclass(frozen=True)
class Entry:
    """One system in a row.

    Attributes:
      gross: None if there is none, or none to be trusted.
      baseline: the same without an exchange; None where the section has no such thing.
      net: gross less baseline.
      busy: samples that were taken while others used the CPUs.
      notes: about this system in this case.
      rounds: by part, "gross" and "net", the value of each round.
    """

    gross: Spread | None
    baseline: Spread | None
    net: Spread | None
    busy: int
    notes: tuple[Note, ...]
    rounds: dict[str, dict[int, float]] = field(default_factory=dict)

    @property
    def noise(self) -> list[str]:
        """Why its gross is to be doubted, by the load and the spread; empty if it is not."""
        if self.gross is None:
            return []
        busy = ["busy"] if self.busy * 2 >= self.gross.count else []
        return busy + (["spread"] if self.gross.relative > WIDE else [])


@dataclass(frozen=True)
class Row:
    """One case at one number of ranks.

    Attributes:
      section, case, size, unit: as in `Sample`.
      judged: "gross" or "net": what `ratio` is taken of.
      entries: by system, in the order of the table.
      best: the peer's best configuration; None if none was measured.
      ratio: ours / best; None if there is no figure for both, if one is not above zero, or if the
        row is not one to be compared.
      doubts: why the ratio is not to be relied on, or is missing; short.
      net_is_lost: it was to be judged by net, but one is too small beside what it is the difference
        of, so it is by gross.
      by_round: the ratios of the single rounds; None if no round has figures of both, or if one
        is below zero in some round.
    """

    section: str
    case: str
    size: int
    unit: str
    judged: str
    entries: dict[str, Entry]
    best: str | None
    ratio: float | None
    doubts: tuple[str, ...]
    net_is_lost: bool = False
    by_round: Spread | None = None

    @property
    def verdict(self) -> str:
        """ "faster", "slower" or "even", of ours; "" without a ratio.

        It is even unless the ratio of the medians and those of all rounds lie on the same side of
        1, which five rounds of equals do in one case of sixteen.
        """
        if self.ratio is None:
            return ""
        if self.by_round is not None and self.ratio < 1 and self.by_round.high < 1:
            return "faster"
        if self.by_round is not None and self.ratio > 1 and self.by_round.low > 1:
            return "slower"
        return "even"

    @property
    def noisy(self) -> bool:
        return self.ratio is not None and bool(self.doubts)

    def figure(self, system: str) -> Spread | None:
        """What is judged, of one system."""
        entry = self.entries.get(system)
        if entry is None:
            return None
        return entry.net if self.judged == "net" else entry.gross


def spread(values: Iterable[float]) -> Spread:
    """Raises ValueError if there are no values."""
    found = sorted(values)
    if not found:
        raise ValueError("no values")
    first, median, third = (
        statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    )
    return Spread(median, found[0], found[-1], first, third, len(found))


def rows(record: Record) -> list[Row]:
    """All rows of a run, in the order in which their sections and cases first came up.

    A case that no system could measure has a row too, if there is a note on it.
    """
    keys: dict[tuple[str, str, int], str] = {}
    for sample in record.samples:
        keys.setdefault((sample.section, sample.case, sample.size), sample.unit)
    for note in record.notes:
        if note.section in ("collective", "step") and note.case and note.size:
            keys.setdefault((note.section, note.case, note.size), "s")
    places = {case: place for place, case in enumerate(record.judged)}
    ordered = sorted(keys, key=lambda key: (key[2], places.get(key[1], -1)))  # is stable
    return [_row(record, section, case, size, keys[section, case, size])
            for section, case, size in ordered]  # fmt: skip


def _row(record: Record, section: str, case: str, size: int, unit: str) -> Row:
    judged = record.judged.get(case, "gross") if section in ("collective", "step") else "gross"
    mine = [s for s in record.samples if (s.section, s.case, s.size) == (section, case, size)]
    about = [
        note
        for note in record.notes
        if note.section in (section, "") and note.case in (case, "") and note.size in (size, 0)
    ]
    names = [contestant.name for contestant in record.contestants]
    names += sorted({sample.system for sample in mine} - set(names))
    entries = {
        name: _entry(
            [sample for sample in mine if sample.system == name],
            tuple(note for note in about if note.system == name),
        )
        for name in names
    }
    peers = [c.name for c in record.contestants if c.judged and c.name != OURS]
    row = Row(section, case, size, unit, judged, entries, None, None, ())
    compared = section in _COMPARED and size == JUDGED_SIZE and unit not in _MORE_IS_BETTER
    if not compared or OURS not in entries:
        return row
    return _compared(row, peers)


def _entry(samples: Sequence[Sample], notes: tuple[Note, ...]) -> Entry:
    # A system that has given one wrong result in this case has no right one.  One that has died or
    # not answered keeps its rounds until then, and the row a doubt.
    if any(note.kind == "wrong" and note.case for note in notes):
        samples = ()
    parts: dict[str, dict[int, float]] = {"gross": {}, "baseline": {}}
    for sample in samples:
        parts[sample.part][sample.round] = sample.value
    gross, baseline = parts["gross"], parts["baseline"]
    net = {number: gross[number] - baseline[number] for number in gross if number in baseline}
    return Entry(
        spread(gross.values()) if gross else None,
        spread(baseline.values()) if baseline else None,
        spread(net.values()) if net else None,
        sum(s.part == "gross" and s.foreign_cpus > BUSY_CPUS for s in samples),
        notes,
        {"gross": gross, "net": net},
    )


def _compared(row: Row, peers: Sequence[str]) -> Row:
    mine, theirs = row.figure(OURS), {n: f for n in peers if (f := row.figure(n)) is not None}
    best = min(theirs, key=lambda name: theirs[name].median) if theirs else None
    if mine is None or best is None:
        return replace(row, best=best, doubts=("ours not measured" if mine is None else "no peer",))
    # What is exchanged is lost in what the baseline takes: no ratio of such nets means anything.
    if row.judged == "net" and any(_is_lost(row.entries[name]) for name in (OURS, best)):
        return _compared(replace(row, judged="gross", net_is_lost=True), peers)
    nothing = row.section == "idle" and mine.median == 0  # to do nothing at all is a figure there
    if min(mine.median, theirs[best].median) <= 0 and not (nothing and theirs[best].median > 0):
        return replace(row, best=best, doubts=("not above 0",))
    doubts = _noise(row, OURS)
    doubts += [doubt for doubt in _noise(row, best) if doubt not in doubts]
    if not set(row.entries[OURS].rounds[row.judged]) & set(row.entries[best].rounds[row.judged]):
        doubts.append("no common rounds")
    return replace(
        row,
        best=best,
        ratio=mine.median / theirs[best].median,
        doubts=tuple(doubts),
        by_round=_by_round(row, best),
    )


def _is_lost(entry: Entry) -> bool:
    """Whether a net is no more than what its gross and its baseline are uncertain by."""
    if entry.gross is None or entry.baseline is None or entry.net is None:
        return True
    net = entry.net.median
    return net <= 0 or net < _LEAST_NET * entry.gross.median or net < entry.baseline.quartiles


def _by_round(row: Row, best: str) -> Spread | None:
    mine, theirs = (row.entries[name].rounds[row.judged] for name in (OURS, best))
    both = [n for n in mine if n in theirs]
    # A net below zero has no ratio; to leave its round out would be to leave out the best one.
    if not both or any(theirs[n] <= 0 or mine[n] < 0 for n in both):
        return None
    return spread(mine[n] / theirs[n] for n in both)


def _noise(row: Row, system: str) -> list[str]:
    figure, entry = row.figure(system), row.entries[system]
    assert figure is not None
    doubts = []
    if entry.busy * 2 >= figure.count:
        doubts.append("busy")
    if figure.quartiles > WIDE * figure.median:
        doubts.append("spread")
    if figure.count < ENOUGH:
        doubts.append("few rounds")
    if any(note.kind == "failed" and note.case for note in entry.notes):
        doubts.append("a failure")
    return doubts
