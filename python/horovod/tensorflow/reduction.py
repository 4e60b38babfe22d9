"""How gradients are reduced: the one function under the optimizer and the tape."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import Adasum, Average, ReduceOp, Sum
from horovod.tensorflow import _compat
from horovod.tensorflow.averaging import over_size
from horovod.tensorflow.collectives import combine
from horovod.tensorflow.compression import Compressor
from horovod.tensorflow.sparse import densified

__all__ = ["GradientReduction", "refuse_groups"]


def refuse_groups(who: str, num_groups: int, groups: object) -> None:
    """Raises NotImplementedError if a program asks for groups of gradients."""
    if num_groups or groups is not None:
        raise NotImplementedError(
            f"{who}: groups={groups!r}, num_groups={num_groups}: grouped gradients are not built "
            "yet; leave them out, and gradients that are ready at the same time are still fused"
        )


@dataclass(frozen=True)
class GradientReduction:
    """The options of a reduction of gradients, and the reduction itself.

    Attributes:
      scope: the name scope of the ops.
      op: Average or Sum.
      compression: what to make of a gradient for the wire.
      device_dense: where to place the ops of dense gradients; '' as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` first.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      process_set: the ranks that take part.
      scale_local_gradients: whether gradients that stay on their rank are divided by the size.
      ends_training: whether these are gradients of a compat.v1 optimizer; see
        `collectives.combine`.
      local: references of the sources whose gradients stay on their rank.
    """

    scope: str
    op: ReduceOp
    compression: type[Compressor]
    device_dense: str
    device_sparse: str
    sparse_as_dense: bool
    gradient_predivide_factor: float
    process_set: ProcessSet
    scale_local_gradients: bool
    ends_training: bool
    local: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
          NotImplementedError: op is Adasum.
          ValueError: another op than Average and Sum; a factor with another op than Average, or
            one that is not above 0.
        """
        if self.op == Adasum:
            raise NotImplementedError(f"{self.scope}: op=Adasum is not built yet; use op=Average")
        if self.op not in (Average, Sum):
            raise ValueError(
                f"{self.scope}: op is {ReduceOp(self.op).name}, but gradients can only be averaged "
                "or summed; use op=Average or op=Sum"
            )
        if not self.gradient_predivide_factor > 0:
            raise ValueError(
                f"{self.scope}: gradient_predivide_factor={self.gradient_predivide_factor}; it "
                "must be above 0"
            )
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError(
                f"{self.scope}: gradient_predivide_factor={self.gradient_predivide_factor} says "
                f"how an average is divided, but op is {ReduceOp(self.op).name}; use op=Average"
            )

    def keep_local(self, source: Any) -> None:
        """Leaves the gradient of a source, a variable or tensor, on its rank from now on."""
        self.local.add(source.ref())

    def reduce(
        self,
        gradients: Sequence[Any],
        sources: Sequence[Any] | None = None,
        generic_names: bool = False,
    ) -> list[Any]:
        """Reduces gradients over the ranks.

        All are in flight at once in a graph; in eager code they go one after another.

        Args:
          gradients: tensors, `tf.IndexedSlices` or None, as many and in the same order on all
            ranks.  None, no gradient, stays None: it must then be None on all ranks.
          sources: the variable or tensor that each belongs to.
          generic_names: whether to name gradients by their place in the list.  By default they
            are named by their sources, so that a rank with a second model in its graph agrees
            with the others on the names of the first.

        Returns:
          The reduced gradients, in order.
        """
        if sources is None:
            sources = [None] * len(gradients)
        names = _names(gradients, sources, generic_names)
        with tf.name_scope(self.scope):
            return [
                self._reduce_one(gradient, source, name)
                for gradient, source, name in zip(gradients, sources, names)
            ]

    def _reduce_one(self, gradient: Any, source: Any, name: str) -> Any:
        if gradient is None:
            return None
        if self.local and source is not None and source.ref() in self.local:
            return self._scaled_local(gradient)
        if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
            gradient = densified(gradient, source, f"{self.scope}: gradient '{name}'")
        return combine(
            gradient,
            self.op,
            # In a graph the scope becomes part of the node's name by itself.
            name=f"{self.scope}/{name}" if _compat.executing_eagerly() else name,
            device_dense=self.device_dense,
            device_sparse=self.device_sparse,
            compression=self.compression,
            prescale_factor=1.0 / self.gradient_predivide_factor,
            postscale_factor=self.gradient_predivide_factor,
            process_set=self.process_set,
            gradient=self.ends_training,
        )

    def _scaled_local(self, gradient: Any) -> Any:
        if not self.scale_local_gradients:
            return gradient
        if not isinstance(gradient, tf.IndexedSlices):
            return over_size(gradient, self.process_set)
        return tf.IndexedSlices(
            over_size(gradient.values, self.process_set), gradient.indices, gradient.dense_shape
        )


def _names(gradients: Sequence[Any], sources: Sequence[Any], generic: bool) -> list[str]:
    """Returns one name per gradient; no two are equal."""
    taken: collections.Counter[str] = collections.Counter()
    names = []
    for place, (gradient, source) in enumerate(zip(gradients, sources)):
        of = None if generic else getattr(source if source is not None else gradient, "name", None)
        name = f"HorovodAllreduce_{of}" if of else f"HorovodAllreduce_grad_{place}"
        taken[name] += 1
        names.append(name if taken[name] == 1 else f"{name}_{taken[name] - 1}")
    return names
