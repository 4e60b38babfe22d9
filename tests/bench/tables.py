"""Lists of cells as tables: for a terminal, and in Markdown.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["WIDTH", "blocks", "pipes"]

WIDTH = 120  # of a terminal


def blocks(title: str, table: Sequence[Sequence[str]], keys: int) -> list[str]:
    """The table, in as many parts as the terminal's width asks for.

    A last column without a head is of remarks; where they do not fit, each is below its line.

    Args:
      title: of it.
      table: its head and its lines.
      keys: how many of its columns are in each part.
    """
    widths = [max(map(len, column)) for column in zip(*table)]
    below = [""] * len(table)
    if not table[0][-1] and _total(widths) > WIDTH:
        below, widths = [line[-1] for line in table], widths[:-1]
    first = list(range(keys))
    parts = [list(first)]
    for place in range(keys, len(widths)):
        if _total([widths[p] for p in (*parts[-1], place)]) > WIDTH and parts[-1] != first:
            parts.append(list(first))
        parts[-1].append(place)
    found = []
    for number, part in enumerate(parts):
        lines = [[line[place] for place in part] for line in table]
        remarks = below if number == len(parts) - 1 else [""] * len(table)
        found.append(_block(f"{title}, continued" if number else title, lines, remarks))
    return found


def pipes(table: Sequence[Sequence[str]], figures: bool = True) -> str:
    """The table in Markdown; all columns but the first are of figures, or none is."""
    head, *body = table
    rule = ["---"] + ["---:" if figures else "---"] * (len(head) - 1)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _block(title: str, table: Sequence[Sequence[str]], below: Sequence[str]) -> str:
    head = table[0]
    widths = [max(map(len, column)) for column in zip(*table)]
    lines = [title]
    for number, (line, remark) in enumerate(zip(table, below)):
        # Names and remarks, which have no head, are text.
        cells = [cell.rjust(width) if place > 0 and head[place] else cell.ljust(width)
                 for place, (cell, width) in enumerate(zip(line, widths))]  # fmt: skip
        lines.append("  ".join(cells).rstrip())
        if remark:
            lines.append(f"    {remark}")
        if number == 0:
            lines.append("-" * min(WIDTH, _total(widths)))
    return "\n".join(lines)
