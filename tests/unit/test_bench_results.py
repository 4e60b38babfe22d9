"""The benchmarks' figures: from samples to tables, without measuring anything."""

from __future__ import annotations

import pytest

from tests.bench import document, plan, quiet, record, report, standing, units
from tests.bench.cases import CASES
from tests.bench.record import Contestant, Note, Record
from tests.bench.results import Row, rows, spread
from tests.bench.samples import Sample

CASE = "allreduce 1 MiB"
PEERS = ("gloo", "mpi")


def made(
    gross: dict[str, list[float]],
    baseline: dict[str, list[float]] | None = None,
    judged: str = "gross",
    notes: tuple[Note, ...] = (),
    busy: float = 0.0,
    size: int = 2,
    section: str = "collective",
) -> Record:
    """A run of one case; values in seconds, by system, one for each round."""
    samples = [
        Sample(section, CASE, system, part, size, number, value, "s", busy)
        for part, found in (("gross", gross), ("baseline", baseline or {}))
        for system, values in found.items()
        for number, value in enumerate(values)
    ]
    contestants = [Contestant("ours", "this tree", True)]
    contestants += [Contestant(name, f"the peer, {name}", True) for name in PEERS]
    contestants += [Contestant("torch", "another", False)]
    return Record({"CPU": "a CPU"}, contestants, {CASE: judged}, samples, list(notes), 5, 0.1)


def only_row(found: Record) -> Row:
    (row,) = rows(found)
    return row


def note(kind: str, system: str, text: str, case: str = CASE) -> Note:
    return Note(kind, "collective" if case else "", case, system, 2, text)


@pytest.mark.parametrize(
    ("values", "median", "low", "high", "quartiles"),
    [
        ([3.0], 3, 3, 3, 0),
        ([5.0, 1.0, 3.0], 3, 1, 5, 2),
        ([1.0, 2.0, 3.0, 100.0], 2.5, 1, 100, 25.5),
    ],
)
def test_a_spread(values, median, low, high, quartiles) -> None:
    found = spread(values)
    assert (found.median, found.low, found.high) == (median, low, high)
    assert found.quartiles == pytest.approx(quartiles)
    assert found.count == len(values)


def test_no_values_have_no_spread() -> None:
    with pytest.raises(ValueError, match="no values"):
        spread([])


def test_the_ratio_is_of_medians_and_of_the_best_peer() -> None:
    row = only_row(
        made({"ours": [1, 2, 99], "gloo": [8, 8, 8], "mpi": [4, 4, 1], "torch": [1, 1, 1]})
    )
    assert row.best == "mpi"  # the median of 4, not the lowest of 1; torch is not judged
    assert row.ratio == 0.5


def test_the_net_is_of_pairs_of_a_round() -> None:
    # The machine became twice as slow after the first round: the nets are 1, 2, 2, though medians
    # of gross and baseline alone would give 16 - 14.5.
    found = made(
        {"ours": [8, 16, 17], "gloo": [10, 20, 21]},
        {"ours": [7, 14, 15], "gloo": [7, 14, 15]},
        judged="net",
    )
    row = only_row(found)
    net = row.entries["ours"].net
    assert net is not None and net.median == 2
    assert row.ratio == pytest.approx(2 / 6)


def test_a_round_without_its_baseline_has_no_net() -> None:
    found = made({"ours": [8, 9], "gloo": [9, 9]}, {"ours": [7], "gloo": [7, 7]}, judged="net")
    net = only_row(found).entries["ours"].net
    assert net is not None and net.count == 1


@pytest.mark.parametrize("baselines", [(8, 8), (6, 9.5)])
def test_where_a_net_is_not_above_zero_gross_is_judged(baselines) -> None:
    ours, peer = baselines
    found = made(
        {"ours": [7] * 3, "gloo": [9] * 3}, {"ours": [ours] * 3, "gloo": [peer] * 3}, "net"
    )
    row = only_row(found)
    assert row.ratio == 7 / 9 and row.judged == "gross" and not row.noisy
    assert "by gross" in report.terminal(found)


def test_nothing_is_divided_by_zero() -> None:
    row = only_row(made({"ours": [0] * 3, "gloo": [1] * 3}))
    assert row.ratio is None and row.doubts == ("not above 0",)


@pytest.mark.parametrize(
    ("gross", "doubt"),
    [({"gloo": [1.0]}, "ours not measured"), ({"ours": [1.0]}, "no peer")],
)
def test_who_is_missing_is_said(gross, doubt) -> None:
    row = only_row(made(gross))
    assert row.ratio is None and row.doubts == (doubt,)


@pytest.mark.parametrize(
    ("ours", "busy", "doubts"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0], 0.0, ()),
        ([1.0, 1.0, 1.0, 1.0, 9.0], 0.0, ()),  # one outlier does not move a median
        ([1.0, 1.0, 1.0, 9.0, 9.0], 0.0, ("spread",)),
        ([1.0, 1.0, 1.0, 1.0, 1.0], 1.0, ("busy",)),
        ([1.0], 0.0, ("few rounds",)),
    ],
)
def test_what_is_noisy(ours, busy, doubts) -> None:
    row = only_row(made({"ours": ours, "gloo": [2.0] * 5}, busy=busy))
    assert row.doubts == doubts
    assert row.noisy == bool(doubts)


def test_noise_of_the_best_peer_counts_and_that_of_others_does_not() -> None:
    wild = [5.0, 9.0, 20.0]
    assert only_row(made({"ours": [1] * 3, "gloo": wild, "mpi": [30] * 3})).noisy
    assert not only_row(made({"ours": [1] * 3, "gloo": wild, "mpi": [2] * 3})).noisy


def test_a_system_that_failed_in_a_case_has_no_figure_there() -> None:
    failed = note("failed", "gloo", "rank 1: element 7 is 3.0, must be 4.0")
    found = made({"ours": [2] * 3, "gloo": [1] * 2, "mpi": [4] * 3}, notes=(failed,))
    row = only_row(found)
    assert row.best == "mpi" and row.entries["gloo"].gross is None
    text = report.terminal(found)
    assert "[1] gloo, allreduce 1 MiB: failed: rank 1: element 7 is 3.0, must be 4.0" in text
    assert found.failures_of_ours() == []


def test_a_case_that_nobody_could_measure_has_a_row_that_says_why() -> None:
    text = report.terminal(made({}, notes=(note("missing", "ours", "has no such operation"),)))
    assert f"{CASE} " in text and "ours not measured [1]" in text


@pytest.mark.parametrize("system", ["ours", "ours-tcp"])
def test_a_failure_of_ours_is_one(system: str) -> None:
    assert made({}, notes=(note("failed", system, "wrong"),)).failures_of_ours()
    assert not made({}, notes=(note("missing", system, "no shm here"),)).failures_of_ours()


def test_more_ranks_are_not_judged() -> None:
    found = made({"ours": [9] * 3, "gloo": [1] * 3}, size=8)
    assert only_row(found).ratio is None
    assert "8 ranks, not judged" in report.terminal(found)
    assert "no row in which ours can be compared" in standing.paragraph(found)


def test_the_paragraph_names_the_slower_rows_and_by_how_much() -> None:
    slower = made({"ours": [9] * 3, "gloo": [3] * 3})
    assert "in 1 of 1 rows: allreduce 1 MiB (3.00 times gloo)" in standing.paragraph(slower)
    faster = made({"ours": [1] * 3, "gloo": [3] * 3})
    assert "in none of 1 rows" in standing.paragraph(faster)
    even = made({"ours": [3.1] * 3, "gloo": [3] * 3})
    assert "Within 5% of each other: allreduce 1 MiB" in standing.paragraph(even)
    noisy = made({"ours": [9] * 3, "gloo": [3] * 3}, busy=1)
    assert "gloo, noisy)" in standing.paragraph(noisy)
    assert "not to be relied on: 1 of the 1" in standing.paragraph(noisy)


def test_the_paragraph_says_that_ours_failed() -> None:
    notes = (note("failed", "ours", "wrong"),)
    found = made({"ours": [1] * 3, "gloo": [3] * 3}, notes=notes, section="step")
    found.samples += made({"ours": [1] * 3, "gloo": [3] * 3}, section="launch").samples
    assert "**Ours failed** in: allreduce 1 MiB" in standing.paragraph(found)


def test_a_run_survives_json() -> None:
    notes = (note("failed", "gloo", "wrong"), note("missing", "torch", "none here", case=""))
    found = made({"ours": [1.25e-5, 2], "gloo": [3]}, {"ours": [1]}, "net", notes)
    assert record.from_json(record.to_json(found)) == found


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "form None"),
        ('{"form": 99}', "form 99"),
        ('{"form": 1}', "missing or unknown"),
        ('{"form": 1, "contestants": [{"naem": 1}], "samples": [], "notes": []}', "naem"),
        ("[", "Expecting"),
    ],
)
def test_what_is_no_run_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        record.from_json(text)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0, "s", "0.00 µs"),
        (4.56e-5, "s", "45.6 µs"),
        (9.996e-4, "s", "1.00 ms"),
        (0.1234, "s", "123 ms"),
        (12.0, "s", "12.0 s"),
        (-2e-5, "s", "-20.0 µs"),
        (5.4e9, "B/s", "5.40 GB/s"),
        (4.123e8, "B", "412 MB"),
        (12.0, "switches", "12.0 switches"),
    ],
)
def test_figures_as_text(value: float, unit: str, text: str) -> None:
    assert units.one(value, unit) == text


def test_the_terminal_table_has_all_columns_in_120() -> None:
    names = [case.name for case in CASES]
    found = made({})
    found.judged = {case.name: case.judged for case in CASES}
    found.samples = [
        Sample("collective", name, system, part, 2, number, value * (1 + number), "s", 1.0)
        for name in names
        for system, part, value in (
            ("ours", "gross", 0.01234),
            ("ours", "baseline", 0.01),
            ("gloo", "gross", 0.5),
            ("gloo", "baseline", 0.25),
        )
        for number in range(3)
    ]
    lines = report.terminal(found).split("\n\nRemarks")[0].splitlines()
    table = [line for line in lines if not line.startswith("Ours is slower")]
    assert max(map(len, table)) <= 120
    for name in names:
        assert any(line.startswith(f"{name}  ") for line in table)
    assert "noisy: busy, spread" in table[3]


def test_a_long_reason_is_cut_in_its_middle() -> None:
    text = "begin " + "x" * 5000 + " end"
    (footnote,) = report.footnotes(made({}, notes=(note("failed", "mpi", text),)))
    assert len(footnote.text) < 400
    assert "begin" in footnote.text and footnote.text.endswith("end")


def test_notes_that_say_the_same_are_one() -> None:
    notes = tuple(note("missing", "ours", "no such", case) for case in ("a", "b"))
    (footnote,) = report.footnotes(made({}, notes=notes))
    assert footnote.text == "ours, a; b: not measured: no such"


def test_the_document_is_filled_between_its_markers_again_and_again() -> None:
    found = made({"ours": [1] * 3, "gloo": [2] * 3})
    blank = f"head\n{document.BEGIN}\nold\n{document.END}\ntail\n"
    once = document.filled(blank, found, "benchmarks.png")
    assert document.filled(once, found, "benchmarks.png") == once
    assert once.startswith("head\n") and once.endswith("\ntail\n") and "old" not in once
    assert "](benchmarks.png)" in once and "| **0.50** |" in once and "a CPU" in once
    assert "benchmarks.png" not in document.filled(blank, found, None)
    with pytest.raises(ValueError, match="lacks"):
        document.filled(f"{document.END} {document.BEGIN}", found, None)


def test_every_system_is_first_and_every_system_is_last() -> None:
    order = [plan.rotated(["a", "b", "c"], number) for number in range(4)]
    assert order == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
    assert plan.rotated([], 5) == []


STAT = "cpu  100 10 30 5000 70 2 3 {steal} 40 0\ncpu0 1 2 3 4\n"


def test_busy_ticks_are_all_but_idle_and_waiting() -> None:
    assert quiet.busy_ticks(STAT.format(steal=6)) == 100 + 10 + 30 + 2 + 3 + 6


def test_it_waits_for_quiet_and_says_for_whom() -> None:
    looks, said = iter([2.0, 1.0, 0.1, 0.0]), []
    watch = quiet.Quiet(100, said.append, lambda: next(looks), lambda: ["cc1plus (7): 2.0 CPUs"])
    assert watch.wait() == 0.1
    assert said == ["waiting for quiet: 2.0 CPUs are busy: cc1plus (7): 2.0 CPUs"]
    assert watch.wait() == 0.0 and len(said) == 1


def test_it_does_not_wait_for_ever() -> None:
    said: list[str] = []
    watch = quiet.Quiet(0.01, said.append, lambda: 2.0, lambda: [])
    assert watch.wait() == 2.0
    assert watch.left_s <= 0 and "no more waiting" in said[-1]
    count = len(said)
    assert watch.wait() == 2.0 and len(said) == count  # spent: it only looks
