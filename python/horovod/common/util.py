"""Small questions and helpers that programs import from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from horovod.common import build_info
from horovod.common.basics import gloo_built, mpi_built, nccl_built
from horovod.common.exceptions import HorovodVersionMismatchError

__all__ = [
    "check_installed_version",
    "gloo_built",
    "is_iterable",
    "mpi_built",
    "nccl_built",
    "num_rank_is_power_2",
    "split_list",
]

T = TypeVar("T")


def split_list(items: Sequence[T], num_parts: int) -> list[list[T]]:
    """Splits a list into `num_parts` runs whose lengths differ by at most one.

    Example:
      >>> hvd.split_list([1, 2, 3, 4, 5], 2)
      [[1, 2, 3], [4, 5]]

    Args:
      items: in the order to keep.
      num_parts: at least 1; with more parts than items the last parts are empty.

    Raises:
      ValueError: `num_parts` is below 1.
    """
    if num_parts < 1:
        raise ValueError(f"split_list: num_parts is {num_parts}; it must be at least 1")
    length, rest = divmod(len(items), num_parts)
    parts, begin = [], 0
    for part in range(num_parts):
        end = begin + length + (part < rest)
        parts.append(list(items[begin:end]))
        begin = end
    return parts


def num_rank_is_power_2(num_rank: int) -> bool:
    """Returns whether `num_rank` is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(x: Any) -> bool:
    """Returns whether `x` can be iterated over."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Checks that the package was built for the framework that is installed.

    Args:
      name: the framework; only "tensorflow" has a record, others pass.
      version: the one that is installed.
      exception: what went wrong and may be explained by another version.

    Raises:
      HorovodVersionMismatchError: built for another version.
    """
    library = build_info.op_library_path()
    if name != "tensorflow" or not library.exists():
        return
    built_for = build_info.built_for(library)
    if built_for is not None and built_for != version:
        raise HorovodVersionMismatchError(name, version, built_for) from exception
