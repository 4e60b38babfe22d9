"""All that one run has found, and its form as JSON.  Pure, but for `write` and `read`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.samples import Sample

__all__ = [
    "OURS",
    "Contestant",
    "Note",
    "Record",
    "from_json",
    "is_ours",
    "read",
    "to_json",
    "write",
]

OURS = "ours"  # the `systems.System` that all ratios are of
_FORM = 1  # of the JSON; another number is another meaning of its fields


@dataclass(frozen=True)
class Contestant:
    """What the table says of a system.

    Attributes:
      name: as in `Sample.system`.
      title: for readers.
      judged: whether it is ours or a configuration of the peer that ours is compared with.
    """

    name: str
    title: str
    judged: bool


@dataclass(frozen=True)
class Note:
    """Why a figure is missing, or not to be trusted.

    Attributes:
      kind: "missing": it was not measured; "wrong": a result was not what it must be; "failed": a
        rank died, did not answer or cannot do what it should; "remark": it was measured, in a way
        that a reader should know of.
      section: as in `Sample`; "" for all of them.
      case: of the section; "" for all of them.
      system: "" for what belongs to the machine.
      size: ranks; 0 for any number.
      text: why.
    """

    kind: str
    section: str
    case: str
    system: str
    size: int
    text: str


@dataclass
class Record:
    """One run.

    Attributes:
      machine: CPU, memory, versions, ...: name and value, for readers.
      contestants: in the order of the table.
      judged: case to "gross" or "net", in the order of the table; what ratios are taken of.
      samples: in the order in which they were taken.
      notes: the same.
      rounds: planned.
      turn_s: planned for each part of a turn.
      began: date and time, UTC.
      took_s: in all.
      complete: whether it is one to be published by itself: nothing of it was left out, on purpose
        or for want of time, the peer has figures, and ours did not fail.
    """

    machine: dict[str, str] = field(default_factory=dict)
    contestants: list[Contestant] = field(default_factory=list)
    judged: dict[str, str] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    rounds: int = 0
    turn_s: float = 0.0
    began: str = ""
    took_s: float = 0.0
    complete: bool = False

    def failures_of_ours(self) -> list[Note]:
        """What makes the run end with an error."""
        return [n for n in self.notes if n.kind in ("failed", "wrong") and is_ours(n.system)]


def is_ours(system: str) -> bool:
    """Whether a system is this tree, whatever it is set to."""
    return system.split("-")[0] == OURS


def to_json(record: Record) -> str:
    return json.dumps({"form": _FORM, **asdict(record)}, indent=1)


def from_json(text: str) -> Record:
    """Raises ValueError if the text is not what `to_json` writes."""
    fields: dict[str, Any] = json.loads(text)
    form = fields.pop("form", None)
    if form != _FORM:
        raise ValueError(f"form {form!r} of the results, but this program knows only {_FORM}")
    try:
        return Record(
            **{
                **fields,
                "contestants": [Contestant(**item) for item in fields["contestants"]],
                "samples": [Sample(**item) for item in fields["samples"]],
                "notes": [Note(**item) for item in fields["notes"]],
            }
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"a field of the results is missing or unknown: {error}") from error


def write(record: Record, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_json(record) + "\n")


def read(path: Path) -> Record:
    """Raises ValueError as `from_json` does."""
    return from_json(path.read_text())
