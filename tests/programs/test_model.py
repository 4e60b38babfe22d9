"""The parts of the random programs that need no ranks: nothing wrong goes by unseen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import hypothesis
import numpy as np
import pytest

from tests.programs import soak, values
from tests.programs.__main__ import command_for
from tests.programs.draw import from_choices, from_seed
from tests.programs.judge import Outcome, complaints
from tests.programs.model import CANCELLED, OK, expected_of, last_to_join
from tests.programs.program import (
    Call,
    Id,
    Op,
    Phase,
    Program,
    Step,
    active,
    ops_of,
    process_sets,
    waves,
)
from tests.programs.test_programs import programs

SIZE = 3
Outcomes = list[dict[Id, Outcome]]


def as_it_must_be(program: Program) -> Outcomes:
    """What ranks without fault come to; where there is a choice, all succeed."""
    outcomes: Outcomes = [{} for _ in range(program.size)]
    for number, by_rank in expected_of(program).items():
        for rank, expected in by_rank.items():
            if expected.results is None:
                error = expected.errors[0]
                made = Outcome(error.code, ", ".join(error.words))
            else:
                dtype = values.dtype_of(dict(ops_of(program))[number].calls[rank].dtype)
                results = [np.asarray(x).astype(dtype) for x in expected.results]
                made = Outcome(OK, "", results, list(expected.received_splits))
            outcomes[rank][number] = made
    for p, phase in enumerate(program.phases):
        if phase.leaves is not None:
            last = np.array(min(last_to_join(program, p)), "int32")
            for of_rank in outcomes:
                of_rank[(p, len(phase.steps), 0)] = Outcome(OK, "", [last])
    return outcomes


def one(*calls: Call) -> Program:
    """A program of one op, with the call of each rank."""
    step = Step((Op(dict(enumerate(calls))),))
    return Program(len(calls), (Phase((step,)),))


def shaped(kind: str, *shape: int, **fields: object) -> Call:
    return Call(kind, "x", shapes=(shape,), seed=1, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(30))
def test_ranks_without_fault_give_no_complaint(seed: int) -> None:
    program = from_seed(SIZE, seed)
    assert complaints(program, as_it_must_be(program)) == []


def _another_value(outcome: Outcome) -> None:
    outcome.results[0] = outcome.results[0] + outcome.results[0].dtype.type(1)


def _another_shape(outcome: Outcome) -> None:
    outcome.results[0] = outcome.results[0][:1]


def _no_result(outcome: Outcome) -> None:
    outcome.results.clear()


def _an_error(outcome: Outcome) -> None:
    outcome.code, outcome.text = 3, "'x': rank 0 sent shape [1], rank 1 sent [2]"


@pytest.mark.parametrize("plant", [_another_value, _another_shape, _no_result, _an_error])
@pytest.mark.parametrize("rank", range(SIZE))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize(
    "kind", ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]
)
def test_a_planted_wrong_result_is_seen(
    kind: str, dtype: str, rank: int, plant: Callable[[Outcome], None]
) -> None:
    program = one(*[shaped(kind, 6, dtype=dtype)] * SIZE)
    outcomes = as_it_must_be(program)
    assert complaints(program, outcomes) == []
    plant(outcomes[rank][(0, 0, 0)])
    assert complaints(program, outcomes)


def test_received_splits_that_are_wrong_are_seen() -> None:
    program = one(*[shaped("alltoall", 6, splits=(1, 2, 3))] * SIZE)
    outcomes = as_it_must_be(program)
    assert outcomes[1][(0, 0, 0)].received_splits == [2, 2, 2]
    outcomes[1][(0, 0, 0)].received_splits = [2, 2, 1]
    assert "received_splits" in complaints(program, outcomes)[0]


def test_bits_that_differ_within_the_tolerance_are_seen() -> None:
    program = one(*[shaped("allreduce", 6)] * SIZE)
    outcomes = as_it_must_be(program)
    [result] = outcomes[2][(0, 0, 0)].results
    outcomes[2][(0, 0, 0)].results = [np.nextafter(result, np.float32(np.inf))]
    assert "same bits" in complaints(program, outcomes)[0]


def test_a_call_that_never_ended_is_seen() -> None:
    program = one(*[shaped("allreduce", 6)] * SIZE)
    outcomes = as_it_must_be(program)
    del outcomes[1][(0, 0, 0)]
    assert "rank 1: never ended" in complaints(program, outcomes)[0]


@pytest.mark.parametrize(
    ("calls", "code_of_1", "words"),
    [
        ([shaped("allreduce", 2), shaped("allreduce", 3)], 3, ["shape", "rank 0 ", "rank 1 "]),
        ([shaped("allreduce", 2), shaped("broadcast", 2)], 3, ["kind"]),
        ([shaped("allreduce", 2), shaped("allreduce", 2, op="Max")], 3, ["op"]),
        ([shaped("allreduce", 2), shaped("allreduce", 2, dtype="int8")], 3, ["dtype"]),
        ([shaped("broadcast", 2), shaped("broadcast", 2, root=1)], 3, ["root_rank"]),
        ([shaped("broadcast", 2), shaped("broadcast", 2, root=7)], 2, ["root_rank 7"]),
        ([shaped("allgather", 2), shaped("allgather")], 2, ["a scalar"]),
        ([shaped("alltoall", 2), shaped("alltoall", 2, splits=(3, -1))], 2, ["negative"]),
        ([shaped("alltoall", 2), shaped("alltoall", 3)], 2, ["divided evenly"]),
        ([Call("barrier", "x", process_set=99)] * 2, 2, ["no process set"]),
    ],
    ids=str,
)
def test_what_is_wrong_is_known(calls: list[Call], code_of_1: int, words: list[str]) -> None:
    program = one(*calls)
    [by_rank] = expected_of(program).values()
    assert by_rank[1].results is None
    assert {error.code for error in by_rank[1].errors} == {code_of_1}
    said = " ".join(word for error in by_rank[1].errors for word in error.words)
    assert all(word in said for word in words)
    outcomes = as_it_must_be(program)
    assert complaints(program, outcomes) == []
    for planted in (
        Outcome(OK, "", [np.zeros(2, "float32")]),
        Outcome(5 - code_of_1, outcomes[1][(0, 0, 0)].text),
        Outcome(code_of_1, "it did not work"),
    ):
        assert complaints(program, [outcomes[0], {(0, 0, 0): planted}])


def test_a_cancellation_ends_on_all_ranks_in_one_way() -> None:
    program = one(shaped("allreduce", 2), shaped("allreduce", 2, cancelled=True))
    done = as_it_must_be(program)
    withdrawn: Outcomes = [
        {(0, 0, 0): Outcome(3, "rank 1 (host a) withdrew it: its caller cancelled it")},
        {(0, 0, 0): Outcome(CANCELLED, "allreduce 'x': cancelled")},
    ]
    assert complaints(program, done) == complaints(program, withdrawn) == []
    assert "some ranks alone" in complaints(program, [done[0], withdrawn[1]])[0]
    assert "some ranks alone" in complaints(program, [withdrawn[0], done[1]])[0]


def test_ranks_that_joined_are_skipped_or_missed_and_the_last_one_is_known() -> None:
    everyone = dict.fromkeys(range(3), shaped("allreduce", 1, op="Product"))
    pair = {r: dataclasses.replace(c, process_set=1) for r, c in everyone.items() if r < 2}
    steps = (Step((Op(everyone),)), Step((Op(everyone), Op(pair))))
    program = Program(3, (Phase(steps, leaves=(2, 1, 2)),))
    expected = expected_of(program)
    inputs = [values.inputs(everyone[r], r)[0].astype("float64") for r in range(3)]
    assert expected[(0, 1, 0)].keys() == {0, 2}
    [result] = expected[(0, 1, 0)][0].results or []
    np.testing.assert_allclose(result, inputs[0] * inputs[2])
    assert "has joined" in expected[(0, 1, 1)][0].errors[0].words
    assert last_to_join(program, 0) == {0, 2}
    outcomes = as_it_must_be(program)
    outcomes[1][(0, 2, 0)] = Outcome(OK, "", [np.array(2, "int32")])
    assert "join of phase 0" in complaints(program, outcomes)[0]


@pytest.mark.parametrize(
    ("fields", "rows", "want"),
    [
        ({"op": "Sum"}, ([-5, 3], [1, 4]), [-4, 7]),
        ({"op": "Average"}, ([-5, 3], [0, 4]), [-2, 3]),
        ({"op": "Sum"}, ([127, 1], [1, 1]), [-128, 2]),
        ({"op": "Sum", "prescale": 0.5}, ([-5, 3], [0, 4]), [-2, 3]),
        ({"op": "Sum", "postscale": 3.0}, ([60, -60], [0, 0]), [127, -128]),
        ({"op": "Min", "prescale": -1.0}, ([-5, 3], [1, 4]), [-1, -4]),
        ({"op": "Product", "prescale": 2.0}, ([3, 1], [2, 1]), [24, 4]),
    ],
    ids=str,
)
def test_reductions_of_int8_by_hand(
    fields: dict[str, object], rows: tuple[list[int], list[int]], want: list[int]
) -> None:
    arrays = [np.array(row, "int8") for row in rows]
    got = values.reduced(shaped("allreduce", 2, dtype="int8", **fields), arrays, 2)
    assert got.dtype == np.int8
    assert got.tolist() == want


def test_random_programs_hold_everything() -> None:
    seen = set()
    for seed in range(150):
        program = from_seed(4, seed)
        seen |= {f"joins: {phase.leaves is not None}" for phase in program.phases}
        doubled = [step.doubled for phase in program.phases for step in phase.steps]
        seen |= {f"doubled: {d is not None}" for d in doubled}
        for number, by_rank in expected_of(program).items():
            calls = dict(ops_of(program))[number].calls
            seen |= {f"absent: {len(active(program, *number[:2])) < 4}"}
            for call in calls.values():
                seen |= {call.kind, call.dtype, call.op, f"set {call.process_set}"}
                seen |= {f"grouped: {call.grouped}", f"cancelled: {call.cancelled}"}
            for expected in by_rank.values():
                seen |= {word for e in expected.errors for word in e.words}
                seen |= {f"right: {expected.results is not None}"}
    flags = ("joins", "doubled", "absent", "grouped", "cancelled", "right")
    assert seen >= {f"{flag}: {value}" for flag in flags for value in (True, False)}
    assert seen >= {"allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier"}
    assert seen >= {"Sum", "Average", "Min", "Max", "Product"}
    assert seen >= {f"set {i}" for i in (*range(len(process_sets(4)) + 1), 99)}
    assert seen >= {"float32", "bfloat16", "bool", "uint16", "int64"}
    assert seen >= {"kind", "dtype", "shape", "op", "group", "root_rank", "prescale_factor"}
    assert seen >= {"in flight already", "a scalar", "none may be negative", "has joined"}
    assert seen >= {"they must add up", "cannot be divided evenly", "bool has no Average"}
    assert seen >= {"there is no process set", "could not take part", "may be NaN", "cancelled"}


@pytest.mark.parametrize("seed", range(10))
def test_the_choices_and_the_command_make_the_same_program_again(seed: int) -> None:
    program = from_seed(SIZE, seed)
    assert from_choices(SIZE, program.choices) == program
    command = command_for(program, "tcp", "small")
    assert "--transport tcp --knobs small" in command
    assert from_choices(SIZE, map(int, command.split()[-1].split(","))) == program


def test_each_rank_waits_for_all_that_it_calls_once() -> None:
    for seed in range(30):
        program = from_seed(SIZE, seed)
        for rank in range(SIZE):
            called = [number for wave in waves(program, rank) for number, _ in wave]
            due = [n for n, ranks in expected_of(program).items() if rank in ranks]
            joins = sum(phase.leaves is not None for phase in program.phases)
            assert len(called) == len(set(called)) == len(due) + joins
            assert set(due) <= set(called)


def test_a_program_shrinks_to_what_matters() -> None:
    def waits_for_uneven_rows(program: Program) -> bool:
        return any(
            call.kind == "allgather" and call.shapes[0][0] == 40
            for _, op in ops_of(program)
            for call in op.calls.values()
            if call.shapes and call.shapes[0]
        )

    settings = hypothesis.settings(derandomize=True, database=None, deadline=None, max_examples=500)
    found = hypothesis.find(programs(), waits_for_uneven_rows, settings=settings)
    assert [len(phase.steps) for phase in found.phases] == [1]
    assert len(list(ops_of(found))) == 1


def test_growth_is_that_of_the_rank_that_grew_most() -> None:
    assert soak.growth([100, 200], [100, 206]) == pytest.approx(0.03)
    assert soak.growth([100, 200], [90, 200]) == pytest.approx(0.0)


@pytest.mark.parametrize("arguments", [["--minutes", "1"], ["--size", "1"]])
def test_a_soak_that_could_see_nothing_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        soak.main(arguments)
