"""Puts a run into docs/benchmarks.md, between its markers."""

from __future__ import annotations

from tests.bench.record import Record
from tests.bench.report import markdown
from tests.bench.results import BUSY_CPUS

__all__ = ["BEGIN", "END", "filled"]

BEGIN = "<!-- The figures: make bench writes them. -->"
END = "<!-- End of the figures. -->"


def filled(document: str, record: Record, plot: str | None) -> str:
    """Returns the document with the run between its markers.

    Args:
      document: the whole text.
      record: the run.
      plot: the picture's path from the document; None: there is none.

    Raises:
      ValueError: a marker is missing.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the document lacks {BEGIN!r} or {END!r}")
    picture = (
        [f"![Time of ours over that of the peer's best configuration]({plot})"] if plot else []
    )
    text = "\n\n".join([*picture, markdown(record), _circumstances(record)])
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def _circumstances(record: Record) -> str:
    busy = sum(sample.foreign_cpus > BUSY_CPUS for sample in record.samples)
    lines = ["### On what", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in record.machine.items()]
    lines += [
        "",
        f"{record.began}, {record.took_s / 60:.0f} minutes; {record.rounds} rounds, "
        f"{record.turn_s:.2g} s for each part of a turn; {len(record.samples)} samples, of which "
        f"{busy} were taken while others used the CPUs.",
    ]
    return "\n".join(lines)
