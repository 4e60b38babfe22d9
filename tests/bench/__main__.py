"""Measures this tree beside its peers, and says where it stands.  `make bench` runs it."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType

from tests.bench import document, machine, parts, plan, record, report, results
from tests.bench.cases import CASES, Case, case_named
from tests.bench.quiet import Quiet
from tests.bench.run import Run
from tests.bench.systems import ROOT

__all__ = ["main"]

_OUTPUT = ROOT / "build" / "bench"
_DOCUMENT = ROOT / "docs" / "benchmarks.md"
_PLOT = "benchmarks.png"
_MORE_CASES = ("allreduce 4 B", "allreduce 1 MiB", "allreduce ResNet-50")


def main(arguments: Sequence[str], with_parts: parts.Parts | None = None) -> int:
    """Returns the exit code: 1 if ours failed somewhere, 130 after Ctrl-C.

    Args:
      arguments: of the command line.
      with_parts: for tests; default: those that measure.
    """
    everything = with_parts or parts.real()
    options = _parser().parse_args(arguments)
    try:
        cases = (
            [case_named(name) for name in dict.fromkeys(options.only)]
            if options.only
            else list(CASES)
        )
        systems = _chosen(everything.systems, options.systems, options.quick)
    except ValueError as error:
        _parser().error(str(error))
    if options.quick and not options.only:
        cases = [case for case in cases if case.quick]
    if options.check:
        return 0
    settings = _settings(options)
    found = record.Record(
        contestants=[record.Contestant(s.name, s.title, s.judged) for s in systems],
        judged={case.name: case.judged for case in cases},
        rounds=settings.rounds,
        turn_s=settings.turn_s,
        began=datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    )
    for text in options.remark:
        found.notes.append(record.Note("remark", "", "", "", 0, text))
    if with_parts is None:
        found.machine = machine.describe()
    code, cut = _measure(found, settings, everything, cases, systems)
    asked = {contestant.name for contestant in found.contestants}
    if code == 0 and record.OURS in asked - {sample.system for sample in found.samples}:
        print("error: ours was not measured; the remarks say why", file=sys.stderr)
        code = 1
    lacks = _lacks(found, options, cut or code == _INTERRUPTED)
    found.complete = not lacks
    if lacks and options.write_docs:
        text = f"written by --write-docs, though {'; '.join(lacks)}"
        found.notes.append(record.Note("remark", "", "", "", 0, text))
    _publish(found, options.json, options.write_docs, lacks)
    return code


_INTERRUPTED = 130
# On a busy machine less, rather than a run that nobody waits for.  What has begun may take half a
# minute more.
_QUICK_S, _WHOLE_S = 205.0, 2000.0
_ROUNDS = 5


def _lacks(found: record.Record, options: argparse.Namespace, cut: bool) -> list[str]:
    """Why the run is not one to be published by itself; empty if it is."""
    peers = {c.name for c in found.contestants if c.judged and c.name != record.OURS}
    measured = {s.system for s in found.samples if s.section in ("collective", "step")}
    busy = sum(sample.foreign_cpus > results.BUSY_CPUS for sample in found.samples)
    reasons = {
        "only a part was asked for": options.quick or options.only or options.systems,
        f"it has fewer than {_ROUNDS} rounds": options.rounds < _ROUNDS,
        "the seconds for each part of a turn are not the usual ones": options.seconds,
        "it did not come to its end": cut,
        "the peer has no figures": not peers & measured,
        "ours has no figures": record.OURS not in measured,
        "not all of it was built from this tree": options.remark,
        "the machine was busy most of the time": busy * 2 > len(found.samples),
        "ours failed": found.failures_of_ours(),
    }
    return [reason for reason, holds in reasons.items() if holds]


def _measure(
    found: record.Record,
    settings: plan.Settings,
    everything: parts.Parts,
    cases: Sequence[Case],
    systems: Sequence[parts.SystemLike],
) -> tuple[int, bool]:
    """Fills the record; returns the exit code, and whether something was left out late."""
    start_s = time.monotonic()

    def say(text: str) -> None:
        took_s = int(time.monotonic() - start_s)
        first, *more = text.splitlines() or [""]
        print(f"[{took_s // 60:3}:{took_s % 60:02}] {first}", flush=True)
        for line in more:
            print(f"         {line}", flush=True)

    guess_s = plan.estimate_s(settings, len(cases), len(systems))
    say(
        f"{len(cases)} cases, {len(systems)} systems, rounds: {settings.rounds}, "
        f"{settings.turn_s:g} s for each part of a turn: about {guess_s / 60:.0f} minutes; "
        "Ctrl-C ends it with what there is"
    )
    quiet = Quiet(settings.quiet_s, say)
    run = Run(everything, found, settings, _OUTPUT / "jobs", quiet, say)
    # A service, or a terminal that is closed, has the jobs ended as Ctrl-C has.
    ends = [number for number in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup has it  # fmt: skip
    previous = [signal.signal(number, _interrupt) for number in ends]
    try:
        run.all(cases, systems)
        code = 1 if found.failures_of_ours() else 0
    except KeyboardInterrupt:
        say("interrupted; what there is:")
        text = "interrupted: rounds and sections are missing"
        found.notes.append(record.Note("remark", "", "", "", 0, text))
        code = _INTERRUPTED
    finally:
        for number, handler in zip(ends, previous):
            signal.signal(number, handler)
    found.took_s = time.monotonic() - start_s
    return code, bool(run.cut)


def _publish(
    found: record.Record, json_path: Path, write_docs: bool | None, lacks: Sequence[str]
) -> None:
    print("\n" + report.terminal(found) + "\n")  # first: it needs no disk
    with _said_if_impossible():
        record.write(found, json_path)
        print(f"written: {json_path}")
    with _said_if_impossible():
        if _plot(found, json_path.with_suffix(".png")):
            print(f"written: {json_path.with_suffix('.png')}")
    if write_docs is False or (lacks and not write_docs):
        if lacks and write_docs is None:
            print(f"{_DOCUMENT.name} is left as it was: {'; '.join(lacks)}")
    else:
        with _said_if_impossible():
            pictured = _plot(found, _DOCUMENT.with_name(_PLOT))
            text = document.filled(_DOCUMENT.read_text(), found, _PLOT if pictured else None)
            _DOCUMENT.write_text(text)
            print(f"written: {_DOCUMENT}")
    for note in found.failures_of_ours():
        print(f"error: {note.system}, {note.case or 'start'}: {note.text}", file=sys.stderr)


@contextlib.contextmanager
def _said_if_impossible() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        print(f"error: cannot write: {error}", file=sys.stderr)


def _plot(found: record.Record, path: Path) -> bool:
    """Whether there is a picture now."""
    try:
        from tests.bench import plot
    except ImportError as error:
        print(f"no plot: {error}; `make bench` installs matplotlib into .venv-bench")
        return False
    return plot.draw(found, path)


def _settings(options: argparse.Namespace) -> plan.Settings:
    quick = options.quick
    default_quiet_s = 30.0 if quick else 300.0
    return plan.Settings(
        quick=quick,
        only_cases=bool(options.only),
        rounds=options.rounds,
        turn_s=options.seconds or (0.1 if quick else 0.25),
        deadline_s=options.deadline or (_QUICK_S if quick else _WHOLE_S),
        quiet_s=0.0 if options.no_wait else options.quiet_deadline or default_quiet_s,
        launches=1 if quick else 5,
        idle_s=5.0,
        more_sizes=() if quick or options.only else (4, 8),
        more_rounds=2,
        more_cases=_MORE_CASES,
    )


def _chosen(
    systems: Sequence[parts.SystemLike], names: Sequence[str] | None, quick: bool
) -> list[parts.SystemLike]:
    """Raises ValueError if a name is none."""
    known = {system.name: system for system in systems}
    for name in names or ():
        if name not in known:
            raise ValueError(f"no system {name!r}; there are: {', '.join(known)}")
    if names:
        return [system for system in systems if system.name in names]
    return [system for system in systems if system.judged or not quick]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tools/bench.sh",
        description=__doc__,
        epilog="Variables: BENCH_PEER=0 leaves the peer out, BENCH_TORCH=0 torch.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="few cases, ours and the peer; under 4 minutes")
    add("--rounds", type=_at_least_one, default=_ROUNDS, help=f"default {_ROUNDS}")
    add("--only", nargs="+", metavar="CASE", help="these cases alone, by their names in the table")
    add("--systems", nargs="+", metavar="SYSTEM", help="these systems alone")
    add("--seconds", type=_positive, help="for each part of a turn; default 0.25, quick 0.1")
    add(
        "--deadline",
        type=_positive,
        metavar="S",
        help="from the start, then nothing more begins; the cases end earlier, so that the rest "
        f"has its turn; default {_WHOLE_S:g} s, quick {_QUICK_S:g} s",
    )
    quiet = parser.add_mutually_exclusive_group()
    quiet.add_argument("--no-wait", action="store_true", help="do not wait for a quiet machine")
    quiet.add_argument(
        "--quiet-deadline", type=_positive, metavar="S",
        help="seconds to wait for quiet in the whole run; default 300, quick 30",
    )  # fmt: skip
    add(
        "--write-docs",
        action=argparse.BooleanOptionalAction,
        default=None,
        help=f"write {_DOCUMENT.name} and its picture; default: if the run is a whole one, nothing "
        "was cut, the peer has figures, and ours did not fail",
    )
    add(
        "--json",
        type=Path,
        default=_OUTPUT / "results.json",
        metavar="PATH",
        help="default build/bench/results.json; the picture is put beside it",
    )
    add("--check", action="store_true", help="only say whether the arguments are right")
    add("--remark", action="append", default=[], metavar="TEXT", help="what readers should know")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _at_least_one(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
