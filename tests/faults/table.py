"""What the trials came to, as a table for the terminal and for docs/reliability.md.  Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.faults.catalog import FAULTS, Trial
from tests.faults.judge import Verdict

__all__ = ["BEGIN", "END", "Result", "replaced", "table"]

BEGIN = "<!-- The table: make test-faults writes it. -->"
END = "<!-- End of the table. -->"

_HEAD = (
    "fault",
    "transport",
    "runs",
    "survivors",
    "median",
    "worst",
    "in `init()`: runs",
    "worst",
    "left behind",
)


@dataclass(frozen=True)
class Result:
    """A trial, what it came to, and how many things it left behind."""

    trial: Trial
    verdict: Verdict
    left_behind: int


def table(results: Sequence[Result]) -> str:
    """Makes a table in Markdown, a row for each fault and transport that was tried."""
    rows = [_HEAD, tuple("---" for _ in _HEAD)]
    for fault in FAULTS:
        for transport in sorted({result.trial.transport for result in results}):
            mine = [
                result
                for result in results
                if result.trial.fault == fault and result.trial.transport == transport
            ]
            if mine:
                rows.append((fault.title, transport, *_figures(mine)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def replaced(document: str, text: str) -> str:
    """Puts `text` between the document's markers.

    Raises:
      ValueError: a marker is missing.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the document lacks {BEGIN!r} or {END!r}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _figures(results: Sequence[Result]) -> tuple[str, ...]:
    in_init = [result for result in results if result.verdict.in_init]
    later = [s for result in results if not result.verdict.in_init for s in result.verdict.seconds]
    early = [s for result in in_init for s in result.verdict.seconds]
    return (
        str(len(results) - len(in_init)),
        str(len(later)),
        _time(statistics.median(later)) if later else "",
        _time(max(later)) if later else "",
        str(len(in_init)),
        _time(max(early)) if early else "",
        str(sum(result.left_behind for result in results)),
    )


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
