"""Where we stand, in sentences that are made from the figures, the bad ones first.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.record import Record
from tests.bench.results import JUDGED_SIZE, Row, rows

__all__ = ["paragraph", "ratio_text"]

_WHAT = {"launch": "launch, ", "idle": "idle, ", "memory": "memory, "}


def ratio_text(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if ratio < 0.0005:
        return "<0.001"
    return f"{ratio:.3f}" if ratio < 0.0995 else f"{ratio:.2f}"


def paragraph(record: Record) -> str:
    """Which rows are slower than the best peer, which are faster, and what is missing or noisy."""
    compared = [
        row
        for row in rows(record)
        if row.size == JUDGED_SIZE and (row.ratio is not None or row.doubts)
    ]
    with_ratio = [row for row in compared if row.ratio is not None]
    if not with_ratio:
        return "There is no row in which ours can be compared with the peer."
    slower, faster, even = (
        [row for row in with_ratio if row.verdict == verdict]
        for verdict in ("slower", "faster", "even")
    )
    noisy = [row for row in with_ratio if row.noisy]
    without = [row for row in compared if row.ratio is None]
    sentences = [
        _slower(slower, len(with_ratio)),
        f"Ours takes less than the best of the peer's configurations in {len(faster)} of them"
        f"{_range(faster)}.",
    ]
    if even:
        sentences.append(f"Even, since the rounds do not agree which is less: {_names(even)}.")
    if without:
        sentences.append(f"Without a ratio: {', '.join(_why(row) for row in without)}.")
    sentences.append(
        f"Noisy, so not to be relied on: {len(noisy)} of the {len(with_ratio)}."
        if noisy
        else "None of them is noisy."
    )
    failed = record.failures_of_ours()
    if failed:
        cases = sorted({note.case or "start" for note in failed})
        sentences.append(f"**Ours failed** in: {', '.join(cases)}.")
    return " ".join(sentences)


def _slower(found: Sequence[Row], of: int) -> str:
    if not found:
        return f"Ours is slower or larger than the best of the peer's in none of {of} rows."
    worst_first = sorted(found, key=_ratio, reverse=True)
    listed = ", ".join(
        f"{_WHAT.get(row.section, '')}{row.case} ({_ratio(row):.2f} times {row.best}"
        f"{', noisy' if row.noisy else ''})"
        for row in worst_first
    )
    return (
        "Ours is slower or larger than the best of the peer's configurations in "
        f"{len(found)} of {of} rows: {listed}."
    )


def _range(found: Sequence[Row]) -> str:
    if not found:
        return ""
    ratios = sorted(_ratio(row) for row in found)
    return f" (the best {ratio_text(ratios[0])}, the median {ratio_text(ratios[len(ratios) // 2])})"


def _why(row: Row) -> str:
    return f"{_WHAT.get(row.section, '')}{row.case} ({', '.join(row.doubts)})"


def _names(found: Sequence[Row]) -> str:
    return ", ".join(
        f"{_WHAT.get(row.section, '')}{row.case} ({ratio_text(_ratio(row))})" for row in found
    )


def _ratio(row: Row) -> float:
    assert row.ratio is not None
    return row.ratio
