"""What an operation of a compat.v1 graph is computed from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf

__all__ = ["NO_COLLECTIVES", "collectives", "upstream"]

NO_COLLECTIVES = {"LocalRank", "LocalSize", "ProcessSetIncluded", "Rank", "Size"}
"""Our ops that wait for no other rank, without the prefix "Horovod"."""


def upstream(operations: Iterable[Any], control: bool) -> set[Any]:
    """Returns the operations that run whenever one of some others does, and these.

    Args:
      operations: of one graph.
      control: whether to follow control dependencies besides tensors.
    """
    seen = set(operations)
    left = list(seen)
    while left:
        operation = left.pop()
        before = [source.op for source in operation.inputs]
        if control:
            before += operation.control_inputs
        for source in before:
            if source not in seen:
                seen.add(source)
                left.append(source)
    return seen


def collectives(operations: Iterable[Any]) -> dict[Any, str]:
    """Maps those operations that are collectives, or call or branch into one, to its type.

    Args:
      operations: of one graph.
    """
    found = {}
    library: dict[str, Any] | None = None
    for operation in operations:
        if _is_collective(operation.type):
            found[operation] = operation.type
        elif operation.type != "Const":  # whose attributes may be large
            names = {operation.type, *_functions(operation.node_def)}
            if len(names) > 1 and library is None:
                definition = operation.graph.as_graph_def()
                library = {one.signature.name: one for one in definition.library.function}
            inner = next(_inner_collectives(names, library or {}), None)
            if inner is not None:
                found[operation] = inner
    return found


def _is_collective(kind: str) -> bool:
    match = re.fullmatch(r"Horovod(\w+)", kind)
    return match is not None and match.group(1) not in NO_COLLECTIVES


def _functions(node: tf.compat.v1.NodeDef) -> Iterator[str]:
    """Yields the names of the functions in a node's attributes."""
    for value in node.attr.values():
        for function in (value.func, *value.list.func):
            if function.name:
                yield function.name


def _inner_collectives(names: Iterable[str], library: dict[str, Any]) -> Iterator[str]:
    """Yields the types of the collectives in some functions and in those that these call."""
    seen = set(names)
    left = list(seen)
    while left:
        function = library.get(left.pop())
        for node in function.node_def if function is not None else ():
            if _is_collective(node.op):
                yield node.op
            new = {node.op, *_functions(node)} - seen
            seen |= new
            left += new
