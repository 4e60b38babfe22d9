"""Puts a run into docs/benchmarks.md, between its markers."""

from __future__ import annotations

import re
from pathlib import Path

from tests.bench.record import Record
from tests.bench.report import markdown
from tests.bench.results import BUSY_CPUS
from tests.bench.systems import ROOT

__all__ = ["BEGIN", "END", "filled"]

BEGIN = "<!-- The figures: make bench writes them. -->"
END = "<!-- End of the figures. -->"


def filled(
    document: str, record: Record, plot: str | None, root: Path = ROOT, home: Path | None = None
) -> str:
    """Returns the document with the run between its markers.

    Where the run took place is nobody's business: paths below `root` are written relative to it,
    and those below `home` from "~".

    Args:
      document: the whole text.
      record: the run.
      plot: the picture's path from the document; None: there is none.
      root: of the tree.
      home: of the user; None: of the one who runs this.

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
    for folder, short in ((root, ""), (root.resolve(), ""), (home or Path.home(), "~/")):
        text = _without(text, folder, short)
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


def _without(text: str, folder: Path, short: str) -> str:
    """The text with `short` for the folder at the beginning of paths."""
    if folder == folder.parent:  # "/", of which everything is below
        return text
    start = r"(?<![\w./~-])" + re.escape(str(folder))
    text = re.sub(start + "/", short, text)
    return re.sub(start + r"(?![\w-])", short.rstrip("/") or ".", text)
