"""How gradients are reduced: the one function under the optimizer and the tape."""

from __future__ import annotations

import collections
import contextlib
import numbers
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

import tensorflow as tf

from horovod.common import basics
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import Adasum, Average, ReduceOp, Sum
from horovod.common.util import num_rank_is_power_2, split_list
from horovod.tensorflow import _compat, _raw
from horovod.tensorflow.arguments import is_variable, require_bool
from horovod.tensorflow.averaging import over_size
from horovod.tensorflow.collectives import combine
from horovod.tensorflow.compression import Compressor, require_compression
from horovod.tensorflow.gradient_options import Groups
from horovod.tensorflow.grouped import combine_group
from horovod.tensorflow.sparse import densified
from horovod.tensorflow.variables import label, reference
from horovod.tensorflow.warned_once import warn_once

__all__ = [
    "GradientReduction",
    "Transform",
]

Pairs = Union[Sequence[tuple[Any, Any]], Iterator[tuple[Any, Any]]]
Transform = Callable[[list[tuple[Any, Any]]], Pairs]
"""Makes as many (gradient, variable) pairs of a list of them; see `GradientReduction`."""

# What a gradient carries that was reduced: the scope of who did it.
_REDUCED_BY = "_hvd_reduced_by"


@dataclass(frozen=True)
class GradientReduction:
    """The options of a reduction of gradients, and the reduction itself.

    Attributes:
      scope: the name scope of the ops.
      op: Average, Sum or Adasum.
      compression: what to make of a gradient for the wire.
      device_dense: where to place the ops of dense gradients; '' as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` first.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      process_set: the ranks that take part.
      scale_local_gradients: whether gradients that stay on their rank are divided by the size.
      ends_training: whether these are gradients of a compat.v1 optimizer; see
        `collectives.combine`.
      groups: how many groups to make of the gradients, or the variables of each, by which they
        travel, all or none; see `checked_groups`.  What is in no group travels alone.
      transform_gradients: what to make of (gradient, source) pairs just before the reduction; None
        for nothing.
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
    groups: Groups = 0
    transform_gradients: Transform | None = None
    local: set[Any] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
          ValueError: another op than Average, Sum and Adasum; Adasum of a number of ranks that is
            no power of two; a factor with another op than Average, or one that is not above 0; a
            transformation that cannot be called; a compression, process set or bool that is none.
        """
        require_compression(self.scope, self.compression)
        _raw.require_process_set(self.process_set, self.scope)
        for name in ("sparse_as_dense", "scale_local_gradients"):
            require_bool(self.scope, name, getattr(self, name))
        if self.op not in (Average, Sum, Adasum):
            raise ValueError(
                f"{self.scope}: op is {ReduceOp(self.op).name}, but gradients can only be "
                "averaged, summed or combined by Adasum; use op=Average, op=Sum or op=Adasum"
            )
        if self.op == Adasum and basics.is_initialized():
            ranks = self.process_set.size()
            if not num_rank_is_power_2(ranks):
                raise ValueError(
                    f"{self.scope}: op=Adasum is for 1, 2, 4, 8 ... ranks, and there are {ranks}; "
                    "use op=Average or as many ranks"
                )
        factor = self.gradient_predivide_factor
        if not isinstance(factor, numbers.Real) or not factor > 0:
            raise ValueError(
                f"{self.scope}: gradient_predivide_factor={factor!r}; it must be a number above 0"
            )
        if self.gradient_predivide_factor != 1.0 and self.op != Average:
            raise ValueError(
                f"{self.scope}: gradient_predivide_factor={self.gradient_predivide_factor} says "
                f"how an average is divided, but op is {ReduceOp(self.op).name}; use op=Average"
            )

        if self.transform_gradients is not None and not callable(self.transform_gradients):
            raise ValueError(
                f"{self.scope}: transform_gradients={self.transform_gradients!r}; it must be a "
                "function of a list of (gradient, variable) pairs that returns as many"
            )

    def keep_local(self, source: Any) -> None:
        """Leaves the gradient of a source on its rank from now on.

        Raises:
          ValueError: it is no variable and no tensor.
        """
        if not is_variable(source) and not isinstance(source, tf.Tensor):
            raise ValueError(
                f"{self.scope}: {source!r}, whose gradient is to stay on its rank, is no variable; "
                "pass one variable at a time"
            )
        self.local.add(reference(source))

    def is_local(self, source: Any) -> bool:
        """Returns whether the gradient of a source stays on its rank."""
        return bool(self.local) and source is not None and reference(source) in self.local

    @_compat.without_autograph
    def reduce(
        self,
        gradients: Sequence[Any],
        sources: Sequence[Any] | None = None,
        generic_names: bool = False,
    ) -> list[Any]:
        """Transforms gradients and reduces them over the ranks.

        Args:
          gradients: tensors, `tf.IndexedSlices` or None, as many and in the same order on all
            ranks.
          sources: the variable or tensor that each belongs to.
          generic_names: as for `exchange`.

        Returns:
          The reduced gradients, in order.

        Raises:
          ValueError: as from `transformed` and `exchange`.
        """
        return self.exchange(self.transformed(gradients, sources), sources, generic_names)

    @_compat.without_autograph
    def transformed(self, gradients: Sequence[Any], sources: Sequence[Any] | None) -> Sequence[Any]:
        """Returns what `transform_gradients` makes of gradients of this rank.

        Args:
          gradients: tensors, `tf.IndexedSlices` or None.
          sources: the variable or tensor that each belongs to.

        Raises:
          ValueError: the sources are not known; or the function returns something else than one
            pair for each, with the same sources; or a gradient of another shape or dtype.
        """
        if self.transform_gradients is None:
            return gradients
        if sources is None:
            raise ValueError(
                f"{self.scope}: transform_gradients needs to know the gradients' variables; pass "
                "them too"
            )
        given = list(zip(gradients, sources))
        returned = _compat.as_outside(self.transform_gradients)(given)
        pairs = list(returned) if isinstance(returned, (list, tuple, Iterator)) else None
        if pairs is None or not all(isinstance(p, (tuple, list)) and len(p) == 2 for p in pairs):
            raise ValueError(
                f"{self.scope}: transform_gradients returned {returned!r}; return a list of "
                "(gradient, variable) pairs"
            )
        if len(pairs) != len(given):
            raise ValueError(
                f"{self.scope}: transform_gradients was given {len(given)} pairs (gradient, "
                f"variable) and returned {len(pairs)}; return one for each"
            )
        for place, ((_, before), (_, now)) in enumerate(zip(given, pairs)):
            if now is not before:
                raise ValueError(
                    f"{self.scope}: transform_gradients was given {label(before)!r} in pair "
                    f"{place} and returned {label(now) or now!r} there; keep the order"
                )
        for (before, source), (now, _) in zip(given, pairs):
            if now is not None:
                self._require_same_form(source if before is None else before, now, source)
        return [gradient for gradient, _ in pairs]

    def _require_same_form(self, before: Any, now: Any, source: Any) -> None:
        """Raises ValueError if a transformed gradient has another static shape, or another dtype.

        Args:
          before: the gradient, or the source if it had none.
          now: what `transform_gradients` made of it.
          source: the variable or tensor that it belongs to.
        """
        (shape, dtype), (new_shape, new_dtype) = _form(before), _form(now)
        for what, old, new, same in (
            ("shape", shape, new_shape, shape.is_compatible_with(new_shape)),
            ("dtype", dtype.name, new_dtype.name, dtype == new_dtype),
        ):
            if not same:
                raise ValueError(
                    f"{self.scope}: transform_gradients was given a gradient of {what} {old} for "
                    f"{label(source)!r} and returned one of {new}; keep the {what}"
                )

    @_compat.without_autograph
    def exchange(
        self,
        gradients: Sequence[Any],
        sources: Sequence[Any] | None = None,
        generic_names: bool = False,
    ) -> list[Any]:
        """Reduces gradients, or what is treated like them, over the ranks as they are.

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

        Raises:
          ValueError: a variable in `groups` is none of the sources.
        """
        if sources is None:
            sources = [None] * len(gradients)
        names = _names(gradients, sources, generic_names)
        results = list(gradients)
        travelling = []
        with tf.name_scope(self.scope):
            for place, (gradient, source) in enumerate(zip(gradients, sources)):
                if gradient is None:
                    continue
                if self.is_local(source):
                    results[place] = self.scaled_local(gradient)
                    continue
                self._warn_if_reduced(gradient)
                travelling.append(place)
                if self.sparse_as_dense and isinstance(gradient, tf.IndexedSlices):
                    results[place] = densified(
                        gradient, source, f"{self.scope}: gradient '{names[place]}'"
                    )
            groups, alone = self._divide(travelling, sources)
            for number, group in enumerate(groups):
                combined = combine_group(
                    [results[place] for place in group],
                    self.op,
                    name=self._wire_name(f"HorovodAllreduce_group_{number}"),
                    **self._options(),
                )
                for place, gradient in zip(group, combined):
                    results[place] = gradient
            for place in alone:
                results[place] = combine(
                    results[place], self.op, name=self._wire_name(names[place]), **self._options()
                )
        for place in travelling:
            with contextlib.suppress(AttributeError):
                setattr(results[place], _REDUCED_BY, self.scope)
        return results

    def _options(self) -> dict[str, Any]:
        return {
            "device_dense": self.device_dense,
            "device_sparse": self.device_sparse,
            "compression": self.compression,
            "prescale_factor": 1.0 / self.gradient_predivide_factor,
            "postscale_factor": self.gradient_predivide_factor,
            "process_set": self.process_set,
            "gradient": self.ends_training,
        }

    def _wire_name(self, name: str) -> str:
        # In a graph the scope becomes part of the node's name by itself.
        return f"{self.scope}/{name}" if _compat.executing_eagerly() else name

    def _divide(
        self, places: list[int], sources: Sequence[Any]
    ) -> tuple[list[list[int]], list[int]]:
        """Divides the places of gradients into those of each group, and those that go alone."""
        if isinstance(self.groups, int):
            if not self.groups:
                return [], places
            return [group for group in split_list(places, self.groups) if group], []
        group_of = {
            reference(variable): number
            for number, group in enumerate(self.groups)
            for variable in group
        }
        known = {reference(source) for source in sources if source is not None}
        for number, group in enumerate(self.groups):
            for variable in group:
                if known and reference(variable) not in known:
                    raise ValueError(
                        f"{self.scope}: variable {label(variable)!r} of groups[{number}] is none "
                        f"of the {len(known)} whose gradients are reduced; leave it out"
                    )
        groups: list[list[int]] = [[] for _ in self.groups]
        alone: list[int] = []
        for place in places:
            source = sources[place]
            number = -1 if source is None else group_of.get(reference(source), -1)
            (alone if number < 0 else groups[number]).append(place)
        return [group for group in groups if group], alone

    def _warn_if_reduced(self, gradient: Any) -> None:
        before = getattr(gradient, _REDUCED_BY, None)
        if before is not None:
            warn_once(
                f"{self.scope} reduces gradients that {before} has reduced already: for "
                "op=hvd.Average this only costs time, with op=hvd.Sum they are multiplied by the "
                "number of ranks; wrap the tape or the optimizer, not both"
            )

    def scaled_local(self, gradient: Any) -> Any:
        """Returns the gradient of a source that stays on its rank; see `scale_local_gradients`."""
        if not self.scale_local_gradients:
            return gradient
        if not isinstance(gradient, tf.IndexedSlices):
            return over_size(gradient, self.process_set)
        return tf.IndexedSlices(
            over_size(gradient.values, self.process_set), gradient.indices, gradient.dense_shape
        )


def _form(value: Any) -> tuple[tf.TensorShape, tf.DType]:
    """Returns the static shape, and the dtype, of a gradient or variable."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        value = tf.convert_to_tensor(value)
    return tf.TensorShape(value.shape), tf.as_dtype(value.dtype).base_dtype


def _names(gradients: Sequence[Any], sources: Sequence[Any], generic: bool) -> list[str]:
    """Returns one name per gradient; no two are equal."""
    names: list[str] = []
    taken: set[str] = set()
    counts: collections.Counter[str] = collections.Counter()
    for place, (gradient, source) in enumerate(zip(gradients, sources)):
        # An eager tensor refuses to tell its name.
        of = "" if generic else label(source if source is not None else gradient)
        name = f"HorovodAllreduce_{of}" if of else f"HorovodAllreduce_grad_{place}"
        free = name
        while free in taken:  # another may be called what a count makes of this one
            counts[name] += 1
            free = f"{name}_{counts[name]}"
        taken.add(free)
        names.append(free)
    return names
