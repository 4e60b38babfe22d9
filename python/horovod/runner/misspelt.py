"""Finds variables that look like a knob's name with a slip of the pen, which would do nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

__all__ = ["misspelt"]

_PREFIX = "HOROVOD_"
# Of two names without the prefix, how much alike they must be: one letter in seven may be wrong.
_ALIKE = 0.86
# Programs set them, and they are no slips.
_OTHERS = frozenset({"HOROVOD_GPU_OPERATIONS"})


def misspelt(variables: Iterable[str], known: Collection[str]) -> list[tuple[str, str]]:
    """Pairs each variable that nobody reads with the knob that was probably meant.

    Args:
      variables: names that are set.
      known: names of all knobs, built or not, and of the launcher's own variables.

    Returns:
      (variable, knob), sorted; a name that is like no knob's is not among them.
    """
    knobs = {name[len(_PREFIX) :]: name for name in known if name.startswith(_PREFIX)}
    pairs = []
    for variable in sorted(variables):
        upper = variable.upper()
        if variable in known or variable in _OTHERS or not upper.startswith(_PREFIX):
            continue
        near = difflib.get_close_matches(upper[len(_PREFIX) :], knobs, 1, _ALIKE)
        if near:
            pairs.append((variable, knobs[near[0]]))
    return pairs
