"""Runs one program again and prints it, and what was wrong.  `command_for` says how to call it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.harness.ranks import RankFailed
from tests.programs.draw import from_choices
from tests.programs.job import KNOBS, Job
from tests.programs.program import Program, described

__all__ = ["command_for", "main"]


def command_for(program: Program, transport: str, knobs: str) -> str:
    """The command that runs the program again."""
    choices = list(program.choices)
    while choices and choices[-1] == 0:  # draw.py goes on with zeros
        choices.pop()
    numbers = ",".join(map(str, choices)) or "0"
    where = f"--size {program.size} --transport {transport} --knobs {knobs}"
    return f"python -m tests.programs {where} {numbers}"


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 1 if something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--size", type=int, default=3, help="ranks")
    parser.add_argument("--transport", default="shm", help="as in HOROVOD_TRANSPORT")
    parser.add_argument("--knobs", choices=KNOBS, default="small", help="default: small")
    parser.add_argument("--times", type=int, default=1, help="how often")
    parser.add_argument("choices", help="the numbers that make the program, with commas")
    options = parser.parse_args(arguments)
    program = from_choices(options.size, map(int, options.choices.split(",")))
    print(described(program), flush=True)
    with Job(options.size, options.transport, options.knobs) as job:
        for _ in range(options.times):
            try:
                wrong = job.run(program)
            except RankFailed as error:
                wrong = [str(error)]
            if wrong:
                print("\n".join(["", *wrong]))
                return 1
    print("as it must be")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
