"""Random programs for minutes, with the memory of each rank.  `make soak` runs it.

It fails when a program comes to something else than the model says, does not end, or when a rank's
resident memory has grown by more than 1 % since the first minute.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.core.conftest import TRANSPORTS
from tests.harness.ranks import RankFailed
from tests.programs.__main__ import command_for
from tests.programs.draw import from_seed
from tests.programs.job import KNOBS, Job
from tests.programs.program import described

__all__ = ["growth", "main"]

_MOST_GROWTH = 0.01
_SETTLED_AFTER_S = 60.0  # until then caches and pools fill
_PRINT_EVERY_S = 30.0
# Python's own allocator keeps arenas of 1 MiB for a few objects, which malloc can give back.
_ENVIRONMENT = {"PYTHONMALLOC": "malloc"}
_DEADLINE_S = 60.0  # of a program; the machine may be busy


def growth(settled: Sequence[int], last: Sequence[int]) -> float:
    """The largest growth of a rank's memory, as a part of what it was; bytes by rank."""
    return max(b / a - 1.0 for a, b in zip(settled, last))


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="tools/soak.sh", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="more than 1; default: 10")
    parser.add_argument("--size", type=int, default=4, help="ranks; default: 4")
    parser.add_argument("--transport", choices=TRANSPORTS, default="shm", help="default: shm")
    parser.add_argument("--knobs", choices=KNOBS, default="small", help="default: small")
    parser.add_argument("--seed", type=int, help="of the first program; default: a new one")
    options = parser.parse_args(arguments)
    if options.minutes * 60 <= _SETTLED_AFTER_S:
        parser.error(f"--minutes {options.minutes:g} ends before memory has settled; give over 1")
    if options.size < 2:
        parser.error(f"--size {options.size} leaves nothing to disagree about; give 2 or more")
    seed = random.randrange(2**31) if options.seed is None else options.seed
    what = f"{options.size} ranks over {options.transport}, {options.knobs} knobs"
    print(f"{what}, programs from --seed {seed}", flush=True)
    with Job(options.size, options.transport, options.knobs, _DEADLINE_S, _ENVIRONMENT) as job:
        return _soak(job, options, seed)


def _soak(job: Job, options: argparse.Namespace, seed: int) -> int:
    begin_s = printed_s = time.monotonic()
    settled: list[int] | None = None
    count = 0
    while True:
        now_s = time.monotonic()
        over = now_s - begin_s >= options.minutes * 60
        settles = settled is None and now_s - begin_s >= _SETTLED_AFTER_S
        if over or settles or now_s - printed_s >= _PRINT_EVERY_S:
            printed_s = now_s
            sizes = job.rss_bytes()
            settled = sizes if settles else settled
            text = " ".join(f"{size / 2**20:.2f}" for size in sizes)
            grown = f", {growth(settled, sizes):+.2%}" if settled else ""
            print(
                f"{now_s - begin_s:4.0f} s: {count} programs; MiB by rank: {text}{grown}",
                flush=True,
            )
        if over:
            return _verdict(settled or sizes, sizes)
        program = from_seed(options.size, seed + count)
        count += 1
        try:
            wrong = job.run(program)
        except RankFailed as error:
            wrong = [str(error)]
        if wrong:
            print("\n".join([described(program), "", *wrong]))
            command = command_for(program, options.transport, options.knobs)
            where, _, _ = command.partition("--size")[2].rpartition(" ")
            print(f"\nrepeat: {command}")
            print(f"or, with what came before: tools/soak.sh --seed {seed} --size{where}")
            return 1


def _verdict(settled: Sequence[int], last: Sequence[int]) -> int:
    grown = growth(settled, last)
    if grown > _MOST_GROWTH:
        print(f"memory grew by {grown:.2%} since the first minute; at most {_MOST_GROWTH:.0%}")
        return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
