"""The old way to ask for an average, `average=True`, next to `op=Average`."""

from __future__ import annotations

import functools
import warnings

from horovod.common.reduce_ops import Average, ReduceOp, Sum

__all__ = ["handle_average_backwards_compatibility"]


@functools.cache
def _warn_once(message: str) -> None:
    # The frames between this one and the program: handle_average..., allreduce.
    warnings.warn(message, DeprecationWarning, stacklevel=4)


def handle_average_backwards_compatibility(
    op: ReduceOp | int | None, average: bool | None
) -> ReduceOp:
    """Makes one reduction of the two arguments that may name it.

    Args:
      op: the reduction; default: Average.
      average: deprecated: True for Average, False for Sum.  Warned about once.

    Returns:
      The reduction.

    Raises:
      ValueError: both are given, or `op` is none of Average, Sum, Adasum, Min, Max and Product.
    """
    if average is None:
        return Average if op is None else ReduceOp(op)
    if op is not None:
        raise ValueError(
            f"op={ReduceOp(op).name} and average={average} are both given; leave out average"
        )
    chosen = Average if average else Sum
    _warn_once(f"average={bool(average)} is deprecated; write op=hvd.{chosen.name}")
    return chosen
