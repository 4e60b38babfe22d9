"""One picture of a run: for each case, how ours does against the peer at its best."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a file, also where there is no screen

from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from tests.bench import units
from tests.bench.record import OURS, Record
from tests.bench.results import JUDGED_SIZE, Row, rows
from tests.bench.standing import ratio_text

__all__ = ["draw"]

_FASTER, _SLOWER, _EVEN = "#2a7f62", "#c2452d", "#8a8a8a"
_COLORS = {"faster": _FASTER, "slower": _SLOWER, "even": _EVEN}  # by Row.verdict
_NOISY_HATCH = "////"
_ROW_INCHES = 0.34
_COLUMNS = (1.09, 1.18, 1.19)  # of the figures, in widths of the axes: ours, peer, which peer


def draw(record: Record, path: Path) -> bool:
    """Writes a PNG with a bar for each case that has a ratio; returns False if none has."""
    found = [
        row
        for row in rows(record)
        if row.size == JUDGED_SIZE
        and row.ratio is not None
        and row.section in ("collective", "step")
    ]
    if not found:
        return False
    figure, axes = pyplot.subplots(figsize=(11, 2.1 + _ROW_INCHES * len(found)))
    try:
        _bars(axes, found)
        _scale(axes, [ratio for row in found for ratio in _ratios(row)])
        _legend(axes, record, any(row.noisy for row in found))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130, bbox_inches="tight", facecolor="white")
    finally:
        pyplot.close(figure)
    return True


def _bars(axes: pyplot.Axes, found: Sequence[Row]) -> None:
    for place, row in enumerate(found):
        assert row.ratio is not None
        axes.barh(
            place,
            row.ratio - 1,
            left=1,
            height=0.62,
            color=_COLORS[row.verdict],
            hatch=_NOISY_HATCH if row.noisy else None,
            edgecolor="white",
            alpha=0.6 if row.noisy else 1.0,
            zorder=2,
        )
        faster = row.ratio <= 1
        ends = [row.ratio]
        if row.by_round is not None:
            ends += [row.by_round.first, row.by_round.third]
            axes.plot(ends[1:], [place, place], color="#222222", linewidth=1.2, zorder=3)
        axes.annotate(
            _times(row),
            (min(ends) if faster else max(ends), place),
            xytext=(-5 if faster else 5, 0),
            textcoords="offset points",
            ha="right" if faster else "left",
            va="center",
            fontsize=9,
            fontweight="bold",
            color=_COLORS[row.verdict],
        )
        for x, side, size, text in zip(
            _COLUMNS, ("right", "right", "left"), (9, 9, 8), _figures(row)
        ):
            axes.annotate(
                text,
                (x, place),
                xycoords=("axes fraction", "data"),
                ha=side,
                va="center",
                fontsize=size,
                color="#333333",
            )
    axes.set_yticks(range(len(found)), [row.case for row in found], fontsize=10)
    axes.invert_yaxis()
    axes.set_ylim(len(found) - 0.4, -0.6)
    for x, text in zip(_COLUMNS, ("ours", "peer")):
        axes.annotate(
            text,
            (x, 1.0),
            xytext=(0, 4),
            xycoords="axes fraction",
            textcoords="offset points",
            ha="right",
            fontsize=9,
            fontweight="bold",
        )


def _scale(axes: pyplot.Axes, ratios: Sequence[float]) -> None:
    axes.set_xscale("log")
    lowest, highest = min(0.5, *ratios), max(2.0, *ratios)
    room = (highest / lowest) ** 0.2  # for the text at the bars' ends
    axes.set_xlim(lowest / room, highest * room)
    steps = [1 / 50, 1 / 20, 1 / 10, 1 / 5, 1 / 2, 1, 2, 5, 10, 20, 50]
    ticks = [step for step in steps if lowest / room <= step <= highest * room]
    axes.set_xticks(ticks, [_tick(tick) for tick in ticks], fontsize=9)
    axes.minorticks_off()
    axes.grid(axis="x", color="#e4e4e4", zorder=0)
    axes.axvline(1, color="#222222", linewidth=1.4, zorder=3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(
        "time of ours / time of the peer's best configuration (less is better)", fontsize=10
    )


def _legend(axes: pyplot.Axes, record: Record, noisy: bool) -> None:
    kinds = [
        Patch(color=_FASTER, label="ours faster"),
        Patch(color=_SLOWER, label="ours slower"),
        Patch(color=_EVEN, label="even: the rounds do not agree"),
        Line2D([], [], color="#222222", linewidth=1.2, label="middle half of the rounds"),
    ]
    if noisy:
        kinds.append(
            Patch(facecolor="#bbbbbb", edgecolor="white", hatch=_NOISY_HATCH, label="noisy")
        )
    axes.legend(
        handles=kinds,
        loc="lower left",
        bbox_to_anchor=(-0.01, 1.0),
        ncols=5,
        frameon=False,
        fontsize=9,
    )
    cpu = record.machine.get("CPU", "unknown CPU")
    axes.set_title(
        f"{JUDGED_SIZE} ranks on one machine, rounds in alternation: {record.rounds}\n{cpu}",
        loc="left",
        fontsize=10,
        pad=24,
    )


def _ratios(row: Row) -> list[float]:
    """All that is drawn of a row."""
    found = [] if row.ratio is None else [row.ratio]
    return found + ([row.by_round.first, row.by_round.third] if row.by_round else [])


def _times(row: Row) -> str:
    assert row.ratio is not None
    if row.verdict == "even":
        return "even"
    return f"{1 / row.ratio:.1f}x faster" if row.ratio < 1 else f"{row.ratio:.1f}x slower"


def _tick(value: float) -> str:
    return ratio_text(value).rstrip("0").rstrip(".")


def _figures(row: Row) -> tuple[str, str, str]:
    """What was compared: ours, the peer's, and which that was."""
    mine, theirs = row.figure(OURS), row.figure(row.best or "")
    assert mine is not None and theirs is not None
    kind = ", net" if row.judged == "net" else ""
    ours, peer = (units.one(figure.median, row.unit) for figure in (mine, theirs))
    return ours, peer, f"{row.best}{kind}"
