"""The benchmarks' figures: from samples to tables, without measuring anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import document, record, report, standing, units
from tests.bench.cases import CASES
from tests.bench.record import Contestant, Note, Record
from tests.bench.results import Row, rows, spread
from tests.bench.samples import Sample
from tests.bench.systems import SYSTEMS

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
    # The machine was three times as slow in the last round: the nets are 6, 4, 18, though medians
    # of gross and baseline alone would give 8 - 3.
    found = made(
        {"ours": [8, 7, 27], "gloo": [16, 15, 45]},
        {"ours": [2, 3, 9], "gloo": [4, 3, 9]},
        judged="net",
    )
    row = only_row(found)
    net = row.entries["ours"].net
    assert net is not None and net.median == 6
    assert row.ratio == pytest.approx(6 / 12) and row.judged == "net"


def test_a_round_without_its_baseline_has_no_net() -> None:
    found = made({"ours": [8, 9], "gloo": [9, 9]}, {"ours": [7], "gloo": [7, 7]}, judged="net")
    net = only_row(found).entries["ours"].net
    assert net is not None and net.count == 1


@pytest.mark.parametrize(
    ("ours", "peer"),
    [
        ((8, 8, 8), (8, 8, 8)),  # not above zero
        ((6, 6, 6), (9.5, 9.5, 9.5)),  # nor that of the peer
        ((5.7, 5.7, 5.7), (4, 4, 4)),  # less than a fifth of 7
        ((3, 3, 3), (7.5, 7.5, 7.5)),  # or of 9
        ((1, 5, 6), (4, 4, 4)),  # less than the baselines lie apart
    ],
)
def test_where_a_net_is_lost_in_noise_gross_is_judged(ours, peer) -> None:
    found = made({"ours": [7] * 3, "gloo": [9] * 3}, {"ours": ours, "gloo": peer}, "net")
    row = only_row(found)
    assert row.ratio == 7 / 9 and row.judged == "gross" and row.net_is_lost and not row.noisy
    assert "by gross" in report.terminal(found)


def test_a_net_that_is_large_enough_is_judged() -> None:
    found = made({"ours": [7] * 3, "gloo": [9] * 3}, {"ours": [5] * 3, "gloo": [5] * 3}, "net")
    row = only_row(found)
    assert row.ratio == 0.5 and row.judged == "net" and not row.net_is_lost


@pytest.mark.parametrize(
    ("ours", "peer", "verdict"),
    [
        ([1, 1, 1], [2, 2, 2], "faster"),
        ([2, 2, 2], [1, 1, 1], "slower"),
        ([1.02, 1.02, 1.02], [1, 1, 1], "slower"),  # little, but in every round
        ([1, 1, 1], [1, 1, 1], "even"),
        ([1, 3, 2, 1, 3], [2, 2, 2, 2, 2], "even"),  # the rounds do not agree
        ([1, 1, 1, 1, 3], [2, 2, 2, 2, 2], "even"),  # four of five do, as those of equals often do
        ([10, 20, 40, 80], [11, 22, 44, 88], "faster"),  # they do, though each is a wide spread
        ([3, 1, 3, 9, 9], [2, 2, 8, 8, 2], "even"),  # 3 / 2 by medians
    ],
)
def test_who_is_faster_is_what_all_rounds_agree_on(ours, peer, verdict: str) -> None:
    found = made({"ours": ours, "gloo": peer})
    assert only_row(found).verdict == verdict
    said = standing.paragraph(found)
    assert ("Even, since" in said) == (verdict == "even")
    assert ("in 1 of 1 rows" in said) == (verdict == "slower")
    blank = f"{document.BEGIN}{document.END}"
    bold = "**" in document.filled(blank, found, None)
    assert bold == (verdict != "even" and not only_row(found).noisy)


def test_nothing_is_divided_by_zero() -> None:
    row = only_row(made({"ours": [0] * 3, "gloo": [1] * 3}))
    assert row.ratio is None and row.doubts == ("not above 0",)
    found = made({"ours": [0] * 3, "gloo": [0] * 3}, section="idle")
    assert only_row(found).ratio is None and "not above 0" in report.terminal(found)


def test_a_round_in_which_the_peer_has_no_net_is_not_left_out() -> None:
    nets = {"ours": [10] * 5, "gloo": [-5, -5, 30, 30, 30]}
    base = {name: [5] * 5 for name in nets}
    found = made({n: [v + 5 for v in values] for n, values in nets.items()}, base, "net")
    assert only_row(found).verdict == "even"


def test_figures_are_finite() -> None:
    with pytest.raises(ValueError, match="nan is no figure"):
        made({"ours": [float("nan")]})


def test_to_take_no_time_while_idle_is_less_than_any() -> None:
    found = made({"ours": [0] * 3, "gloo": [1] * 3}, section="idle")
    assert only_row(found).ratio == 0 and only_row(found).verdict == "faster"
    assert "<0.001" in report.terminal(found) and "in 1 of them" in standing.paragraph(found)


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
        ([1.0, 1.0], 0.0, ("few rounds",)),
        ([1.0], 0.0, ("few rounds",)),
    ],
)
def test_what_is_noisy(ours, busy, doubts) -> None:
    row = only_row(made({"ours": ours, "gloo": [2.0] * 5}, busy=busy))
    assert row.doubts == doubts
    assert row.noisy == bool(doubts)


@pytest.mark.parametrize("section", ["launch", "idle", "memory", "step"])
def test_what_was_sampled_once_is_noisy_in_every_section(section: str) -> None:
    assert only_row(made({"ours": [1], "gloo": [2]}, section=section)).doubts == ("few rounds",)


def test_noise_of_the_best_peer_counts_and_that_of_others_does_not() -> None:
    wild = [5.0, 9.0, 20.0]
    assert only_row(made({"ours": [1] * 3, "gloo": wild, "mpi": [30] * 3})).noisy
    assert not only_row(made({"ours": [1] * 3, "gloo": wild, "mpi": [2] * 3})).noisy


def test_a_system_with_a_wrong_result_has_no_figure_there() -> None:
    wrong = note("wrong", "gloo", "rank 1: element 7 is 3.0, must be 4.0")
    found = made({"ours": [2] * 3, "gloo": [1] * 2, "mpi": [4] * 3}, notes=(wrong,))
    row = only_row(found)
    assert row.best == "mpi" and row.entries["gloo"].gross is None
    text = report.terminal(found)
    assert "[1] gloo, allreduce 1 MiB: a wrong result: rank 1: element 7 is 3.0" in text
    assert found.failures_of_ours() == []


def test_a_system_that_died_keeps_its_rounds_and_the_row_a_doubt() -> None:
    died = note("failed", "gloo", "rank 1 was killed")
    found = made({"ours": [2] * 5, "gloo": [1] * 4, "mpi": [4] * 5}, notes=(died,))
    row = only_row(found)
    assert row.best == "gloo" and row.ratio == 2.0 and row.doubts == ("a failure",)
    text = report.terminal(found)
    assert "noisy: a failure [1]" in text and "1.00 / ? (0%) [1]" in text


def test_a_case_that_nobody_could_measure_has_a_row_that_says_why() -> None:
    text = report.terminal(made({}, notes=(note("missing", "ours", "has no such operation"),)))
    assert f"{CASE} " in text and "ours not measured [1]" in text


@pytest.mark.parametrize("system", ["ours", "ours-tcp"])
def test_a_failure_of_ours_is_one(system: str) -> None:
    assert made({}, notes=(note("failed", system, "it died"),)).failures_of_ours()
    assert made({}, notes=(note("wrong", system, "3.0, must be 4.0"),)).failures_of_ours()
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
    even = made({"ours": [3, 4, 2], "gloo": [3, 3, 3]})
    assert "which is less: allreduce 1 MiB (1.00)." in standing.paragraph(even)
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


@pytest.mark.parametrize("section", ["collective", "launch", "memory", "core"])
@pytest.mark.parametrize("size", [2, 8])
def test_the_terminal_tables_have_all_columns_in_120(section: str, size: int) -> None:
    found = made({})
    found.contestants = [Contestant(s.name, s.title, s.judged) for s in SYSTEMS]
    found.judged = {case.name: case.judged for case in CASES}
    found.samples = [
        Sample(section, case.name, system.name, part, size, number, value * (1 + number), "s", 1.0)
        for case in CASES
        for system in SYSTEMS
        for part, value in (("gross", 0.51234), ("baseline", 0.31))
        for number in range(2)
    ]
    blocks = report.terminal(found).split("\n\n")
    tables = [block for block in blocks if "----" in block]
    assert max(len(line) for table in tables for line in table.splitlines()) <= 120
    for name in (case.name for case in CASES):
        assert all(any(line.startswith(f"{name}  ") for line in t.splitlines()) for t in tables)
    heads = {word for table in tables for word in table.splitlines()[1].split()}
    assert {system.name for system in SYSTEMS} <= heads


def test_a_noisy_row_says_why() -> None:
    found = made({"ours": [1, 1, 1, 9, 9], "gloo": [2] * 5}, busy=1.0)
    assert "even; noisy: busy, spread" in report.terminal(found)


@pytest.mark.parametrize(
    ("values", "busy", "span"),
    [
        ([1.0, 1.0, 1.0], 0.0, "(0%)"),
        ([1.0, 1.0, 1.0], 1.0, "(0%!)"),
        ([1.0, 1.0, 1.0, 9.0, 9.0], 0.0, "(800%!)"),
        ([1.0, 1.1], 0.0, "(5%, n=2)"),
        ([1.0], 0.0, "(once)"),
        ([1.0], 1.0, "(once!)"),
    ],
)
@pytest.mark.parametrize("section", ["core", "limit", "launch", "idle", "memory", "collective"])
def test_every_other_table_shows_its_noise(section: str, values, busy: float, span: str) -> None:
    found = made({"ours": values, "gloo": values}, section=section, busy=busy, size=4)
    blocks = report.terminal(found).split("\n\n")
    (line,) = (line for line in blocks[0].splitlines() if line.startswith(CASE))
    assert line.count(span) == 2


def test_instructions_are_counted_once_and_have_no_noise() -> None:
    found = made({})
    found.samples = [Sample("instructions", "x", "ours", "gross", 2, 0, 12345, "instructions", 0)]
    line = report.terminal(found).splitlines()[3]
    assert line.split() == ["x", "12,345"]


def test_a_long_reason_is_cut_in_its_middle() -> None:
    text = "begin " + "x" * 5000 + " end"
    (footnote,) = report.footnotes(made({}, notes=(note("failed", "mpi", text),)))
    assert len(footnote.text) < 400
    assert "begin" in footnote.text and footnote.text.endswith("end")
    cut = "the time was up: " + "; ".join(f"{case.name} has 1 of 5 rounds" for case in CASES)
    (footnote,) = report.footnotes(made({}, notes=(Note("remark", "", "", "", 0, cut),)))
    assert footnote.text == cut


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


def test_the_document_does_not_say_where_it_was_made() -> None:
    texts = [
        "there is no /srv/tree/.venv-peer/bin/python; see /srv/tree, or /srv/tree-two/x",
        "the end of /srv/tree/build/a.log\nFile '/home/me/lib/x.py' of /home/me; /home/men/y",
        "/usr/lib/python3 and /opt/srv/tree/z",
    ]
    found = made({}, notes=tuple(note("missing", "mpi", text) for text in texts))
    blank = f"{document.BEGIN}{document.END}"
    text = document.filled(blank, found, None, Path("/srv/tree"), Path("/home/me"))
    assert "there is no .venv-peer/bin/python; see ., or /srv/tree-two/x" in text
    assert "the end of build/a.log File '~/lib/x.py' of ~; /home/men/y" in text
    assert "/usr/lib/python3 and /opt/srv/tree/z" in text
    assert texts[2] in document.filled(blank, found, None, Path("/"), Path("/"))


def test_the_document_says_who_is_who() -> None:
    text = document.filled(f"{document.BEGIN}{document.END}", made({"ours": [1]}), None)
    assert "| `ours` | this tree | is ours |" in text and "| `torch` | another | no |" in text
