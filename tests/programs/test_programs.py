"""Random programs on three ranks: every result is right, every error is the due one, none hangs."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import strategies

from tests.core.conftest import TRANSPORTS
from tests.programs.__main__ import command_for
from tests.programs.draw import draw
from tests.programs.job import Job
from tests.programs.program import Program, described

SIZE = 3
PROGRAMS = 500  # over each transport


@strategies.composite
def programs(drawn: strategies.DrawFn) -> Program:
    return draw(SIZE, lambda most: drawn(strategies.integers(0, most)))


@pytest.fixture(params=TRANSPORTS)
def job(request: pytest.FixtureRequest) -> Iterator[tuple[str, Job]]:
    with Job(SIZE, request.param) as started:
        yield request.param, started


def test_any_program_comes_to_what_the_model_says(job: tuple[str, Job]) -> None:
    transport, ranks = job

    @hypothesis.settings(
        max_examples=PROGRAMS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(programs())
    def run(program: Program) -> None:
        try:
            wrong = ranks.run(program)
        finally:
            hypothesis.note(f"{described(program)}\nrepeat: {command_for(program, transport)}")
        assert not wrong, "\n".join(wrong)

    run()
