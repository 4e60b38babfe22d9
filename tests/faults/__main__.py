"""Faults at random moments, on every transport; prints a table.  `make test-faults` runs it."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from tests.faults import table, trial
from tests.faults.catalog import FAULTS, TRANSPORTS, Trial, draw, fault_named
from tests.faults.judge import Observation, Verdict, judge

__all__ = ["main", "run_all"]

_DOCUMENT = Path(__file__).parents[2] / "docs" / "reliability.md"
_MOMENTS = 20
_JOBS = 3
_MOST_FAILURES = 5  # after that more of them say nothing new


def run_all(
    trials: Sequence[Trial], jobs: int, slack: float = 1.0
) -> tuple[list[table.Result], list[str]]:
    """Runs trials, a few at once, with a line of progress for each.

    Args:
      trials: what to run.
      jobs: how many at once.
      slack: times the bounds, for a machine that does other work.

    Returns:
      The results in the order in which they came, and a report for each trial that failed.  After
      _MOST_FAILURES of them the rest is left out.
    """
    results: list[table.Result] = []
    failures: list[str] = []
    pool = ThreadPoolExecutor(jobs)
    try:
        for future in as_completed([pool.submit(trial.run, item) for item in trials]):
            seen = future.result()
            verdict = judge(seen, slack)
            results.append(table.Result(seen.trial, verdict, len(seen.left_behind())))
            print(f"[{len(results)}/{len(trials)}] {_line(seen, verdict)}", flush=True)
            if verdict.complaints:
                failures.append(_report(seen, verdict))
                if len(failures) == _MOST_FAILURES:
                    break
    finally:  # also of Ctrl-C: trials that run come to their end, and no other begins
        pool.shutdown(cancel_futures=True)
    return results, failures


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 if a trial failed."""
    parser = argparse.ArgumentParser(prog="tools/test_faults.sh", description=__doc__)
    parser.add_argument("--seed", type=int, help="of the random moments; default: a new one")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="one moment per fault")
    which.add_argument("--only", metavar="TRANSPORT[/FAULT[/NUMBER]]", help="run these alone")
    which.add_argument(
        "--write-docs", action="store_true", help=f"all, then the table into {_DOCUMENT.name}"
    )
    options = parser.parse_args(arguments)
    seed = random.randrange(2**31) if options.seed is None else options.seed
    try:
        trials = _chosen(seed, options.quick, options.only)
    except ValueError as error:
        parser.error(f"--only {options.only}: {error}")
    print(f"{len(trials)} trials, {_JOBS} at once; repeat with --seed {seed}", flush=True)

    start_s = time.monotonic()
    results, failures = run_all(trials, _JOBS)
    took_s = time.monotonic() - start_s
    text = f"{table.table(results)}\n\n{len(results)} runs in {took_s:.0f} s, seed {seed}."
    print(f"\n{text}")
    for failure in failures:
        print(f"\n{failure}")
    if failures:
        label = failures[0].partition(":")[0]
        print(f"\n{len(failures)} of {len(results)} trials failed, {len(trials)} were planned")
        print(f"one again: tools/test_faults.sh --seed {seed} --only {label}")
        return 1
    if options.write_docs:
        _DOCUMENT.write_text(table.replaced(_DOCUMENT.read_text(), text))
    return 0


def _chosen(seed: int, quick: bool, only: str | None) -> list[Trial]:
    if only:
        transport, *rest = only.split("/", 2)
        faults = [fault_named(rest[0])] if rest else list(FAULTS)
        numbers = [int(rest[1])] if len(rest) > 1 else list(range(_MOMENTS))
        return [draw(seed, transport, fault, n) for n in numbers for fault in faults]
    # Number 1 falls into training, and its ranks meet again.
    numbers = [1] if quick else list(range(_MOMENTS))
    return [draw(seed, t, f, n) for n in numbers for t in TRANSPORTS for f in FAULTS]


def _line(seen: Observation, verdict: Verdict) -> str:
    where = "init()" if verdict.in_init else "training"
    worst = f"worst {max(verdict.seconds) * 1e3:.0f} ms" if verdict.seconds else "no time"
    outcome = "FAILED" if verdict.complaints else "ok"
    return (
        f"{seen.trial.label}: rank {seen.trial.victim} of {seen.trial.size} in {where}, "
        f"{worst}: {outcome}"
    )


def _report(seen: Observation, verdict: Verdict) -> str:
    item = seen.trial
    after = "its call of init()" if item.in_init else "init()"
    lines = [
        f"{item.label}: {item.fault.title} of rank {item.victim} of {item.size}, "
        f"{item.delay_s:.3f} s after {after}",
        *(f"  {complaint}" for complaint in verdict.complaints),
    ]
    zero_s = seen.fault_s or min((e["at_s"] for events in seen.events for e in events), default=0.0)
    zero = "the fault" if seen.fault_s else "the first event"
    for rank in range(item.size):
        lines.append(f"--- rank {rank}, status {seen.statuses[rank]}; s from {zero}, event:")
        for event in seen.events[rank]:
            if event["event"] != "step":
                fields = {
                    k: v for k, v in event.items() if k not in ("event", "at_s", "descriptors")
                }
                moment_s = event["at_s"] - zero_s
                lines.append(f"  {moment_s:+.3f} {event['event']} {fields or ''}")
        lines.append(seen.outputs[rank])
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
