"""Lists of (gradient, variable) pairs, as `compute_gradients` of an optimizer returns them."""

from __future__ import annotations

import zlib
from typing import Any

from horovod.tensorflow import _compat

__all__ = ["are_pairs", "names_of_pairs"]

_SHOWN = 8  # places without gradient that a name shows


def are_pairs(value: Any) -> bool:
    """Returns whether a value is a list or tuple, not empty, of (gradient, variable) pairs.

    A pair is a tuple, or a list unless its first is a variable too, which may be two to be stacked.
    """
    return (
        isinstance(value, (list, tuple))
        and len(value) > 0
        and all(
            # Of all that a collective takes, only variables can be assigned to.
            isinstance(pair, (tuple, list))
            and len(pair) == 2
            and hasattr(pair[1], "assign")
            and (isinstance(pair, tuple) or not hasattr(pair[0], "assign"))
            for pair in value
        )
    )


def names_of_pairs(pairs: Any, name: str | None) -> list[str]:
    """Returns the names by which ranks match the gradients of pairs.

    Args:
      pairs: as `are_pairs` knows them.
      name: of all of them together; default: "HorovodAllreduce".

    Returns:
      A name for each.  In a compat.v1 graph it has the variable's, so that a rank may have other
      variables besides; elsewhere, where those are not unique, the place in the list, and the
      places without gradient: where these differ between ranks, the error names them.
    """
    name = name or "HorovodAllreduce"
    if _compat.graph_is_eager_outside():
        idle = [str(place) for place, (gradient, _) in enumerate(pairs) if gradient is None]
        # The first few; the digest of all is what must be the same.
        digest = zlib.crc32(",".join(idle).encode())
        more = f"_and_{len(idle) - _SHOWN}_more_{digest:08x}" if len(idle) > _SHOWN else ""
        without = f"_None_at_{'_'.join(idle[:_SHOWN])}{more}" if idle else ""
        return [f"{name}_grad_{place}{without}" for place in range(len(pairs))]
    return [f"{name}_{variable.name}" for _, variable in pairs]
