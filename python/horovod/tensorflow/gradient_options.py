"""Options of a reduction of gradients that the optimizers and the tape share: their checks."""

from __future__ import annotations

import collections
import numbers
from typing import Any, Union

from horovod.common.reduce_ops import Adasum, ReduceOp
from horovod.tensorflow.arguments import require_whole_number
from horovod.tensorflow.variables import label, reference
from horovod.tensorflow.warned_once import warn_once

__all__ = ["Groups", "check_passes", "checked_groups"]

Groups = Union[int, list[list[Any]]]
"""How many groups to make of the gradients; or the variables of each group."""


def check_passes(who: str, passes: Any, average: bool, op: ReduceOp) -> None:
    """Checks how many passes make a step.

    Args:
      who: begins an error's text.
      passes: the number.
      average: whether their sum is to be divided by it.
      op: of the reduction.

    Raises:
      ValueError: not a whole number above 0; or an average with Adasum.
    """
    require_whole_number(who, "backward_passes_per_step", passes)
    if average and op == Adasum:
        raise ValueError(
            f"{who}: average_aggregated_gradients=True with op=Adasum, which adds up no gradients "
            "but applies each; leave it out"
        )


def checked_groups(who: str, num_groups: int, groups: Any) -> Groups:
    """Makes one value of the two arguments that ask for groups of gradients.

    Args:
      who: begins an error's text.
      num_groups: deprecated: as `groups`, a number.  Warned about once.
      groups: a number of groups, or a list of lists of variables; None for none.

    Returns:
      A number, 0 for no groups, or a list of lists of variables.

    Raises:
      ValueError: both are given and differ; a negative number; not a list of lists of variables;
        a variable given twice.
    """
    if num_groups:
        warn_once(
            f"num_groups={num_groups} is deprecated; write groups={num_groups}", DeprecationWarning
        )
        if groups is not None and groups != num_groups:
            raise ValueError(
                f"{who}: num_groups={num_groups} and groups={groups!r} are both given; leave out "
                "num_groups"
            )
        groups = num_groups
    if groups is None:
        return 0
    if isinstance(groups, numbers.Integral):
        if int(groups) < 0:
            raise ValueError(f"{who}: groups={groups}; a number of groups must be 0 or more")
        return int(groups)
    if not isinstance(groups, (list, tuple)) or not all(
        isinstance(group, (list, tuple)) and all(hasattr(v, "shape") for v in group)
        for group in groups
    ):
        raise ValueError(
            f"{who}: groups={groups!r}; pass a number, or a list of lists of variables such as "
            "[[a, b], [c, d]]"
        )
    listed = [list(group) for group in groups]
    count = collections.Counter(reference(v) for group in listed for v in group)
    for variable in (v for group in listed for v in group):
        if count[reference(variable)] > 1:
            raise ValueError(
                f"{who}: variable {label(variable)!r} is in groups {count[reference(variable)]} "
                "times; name it once"
            )
    return listed
