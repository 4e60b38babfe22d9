"""Random programs on three ranks: every result is right, every error is the due one, none hangs."""

from __future__ import annotations

import itertools

import hypothesis
import pytest
from hypothesis import strategies

from tests.core.conftest import TRANSPORTS
from tests.programs.__main__ import command_for
from tests.programs.draw import draw
from tests.programs.job import KNOBS, Job
from tests.programs.program import Program, described

SIZE = 3
PROGRAMS = 250  # over each transport, with each set of knobs
JOBS = list(itertools.product(TRANSPORTS, KNOBS))


@strategies.composite
def programs(drawn: strategies.DrawFn) -> Program:
    return draw(SIZE, lambda most: drawn(strategies.integers(0, most)))


@pytest.mark.parametrize(("transport", "knobs"), JOBS)
def test_any_program_comes_to_what_the_model_says(transport: str, knobs: str) -> None:
    with Job(SIZE, transport, knobs) as job:
        # The same programs in every run, and other ones for each job.
        @hypothesis.seed(JOBS.index((transport, knobs)))
        @hypothesis.settings(
            max_examples=PROGRAMS,
            database=None,
            deadline=None,
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(programs())
        def run(program: Program) -> None:
            repeat = command_for(program, transport, knobs)
            hypothesis.note(f"{described(program)}\nrepeat: {repeat}")
            wrong = job.run(program)
            assert not wrong, "\n".join(wrong)

        run()
