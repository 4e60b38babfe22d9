"""Figures as text, in a unit that suits them.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Unit", "in_unit", "one", "unit_for"]


@dataclass(frozen=True)
class Unit:
    """A unit to print in: `name`, and how many of the unit of `Sample` it is."""

    name: str
    scale: float


_UNITS = {
    "s": (Unit("µs", 1e-6), Unit("ms", 1e-3), Unit("s", 1.0)),
    "B/s": (Unit("MB/s", 1e6), Unit("GB/s", 1e9)),
    "B": (Unit("kB", 1e3), Unit("MB", 1e6), Unit("GB", 1e9)),
}
_ENOUGH = 0.9995  # of the larger unit, so that no "1000 µs" is printed


def unit_for(value: float, unit: str) -> Unit:
    """The largest unit of which `value` is at least one."""
    units = _UNITS.get(unit, (Unit(unit, 1.0),))
    fitting = [candidate for candidate in units if abs(value) >= _ENOUGH * candidate.scale]
    return fitting[-1] if fitting else units[0]


def in_unit(value: float, unit: Unit) -> str:
    """The figure alone, with three digits or, from 1000 on, all before the point."""
    scaled = value / unit.scale
    if abs(scaled) >= 99.95:
        return f"{scaled:.0f}"
    return f"{scaled:.1f}" if abs(scaled) >= 9.995 else f"{scaled:.2f}"


def one(value: float, unit: str) -> str:
    """The figure and its unit."""
    chosen = unit_for(value, unit)
    return f"{in_unit(value, chosen)} {chosen.name}"
