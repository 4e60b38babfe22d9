"""`tf.IndexedSlices` over the ranks: some rows of a tensor, each with its index.

A rank adds its own rows of one index, so that each index travels once; then all ranks' rows are
gathered, and who applies them adds what the ranks have of one index.

With HOROVOD_SPARSE_AUTO_DENSE the rows go into a dense tensor instead where that is fewer bytes: an
allreduce adds it, and the rows that any rank had are taken out again.  How many rows there are is
known when the step runs, and differs between ranks; so they first tell each other.  In a graph both
ways are there and run: no rank branches around a collective, and the way not taken gets no rows.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from horovod.common import settings
from horovod.common.process_sets import ProcessSet
from horovod.common.reduce_ops import Average, ReduceOp, Sum
from horovod.tensorflow import _raw
from horovod.tensorflow.averaging import over, over_size
from horovod.tensorflow.compression import Compressor, in_op, require_compression

__all__ = ["SlicesReduction", "densified", "first_awaited_of_slices"]

_WIDER = {tf.float16: tf.float32, tf.bfloat16: tf.float32}  # in which type to add and multiply

_WHO = "allreduce of IndexedSlices"
_SUM = {"reduce_op": int(Sum), "prescale_factor": 1.0, "postscale_factor": 1.0}

# Values of shape [rows, ...], and indices of shape [rows].
_Rows = tuple[tf.Tensor, tf.Tensor]


def _wire_name(slices: tf.IndexedSlices, name: str | None) -> str:
    """Returns what the names of a reduction's ops begin with."""
    return name or _raw.default_name("HorovodAllreduce", slices.values) or "HorovodAllreduce"


def _chooses(slices: tf.IndexedSlices) -> bool:
    """Returns whether the rows may go into a dense tensor; no bools do."""
    is_bool = tf.bool == getattr(slices.values, "dtype", None)
    return bool(settings.value("HOROVOD_SPARSE_AUTO_DENSE")) and not is_bool


def first_awaited_of_slices(slices: tf.IndexedSlices, name: str | None) -> tuple[str, str]:
    """Returns type and name of the op that the others wait for first in `SlicesReduction`."""
    if _chooses(slices):
        return "HorovodAllreduce", f"{_wire_name(slices, name)}.bytes"
    return "HorovodAllgather", f"{_wire_name(slices, name)}.values"


@dataclass(frozen=True)
class SlicesReduction:
    """The options of a reduction of `tf.IndexedSlices`, and the reduction itself.

    Attributes:
      op: Average or Sum.
      name: as for `collectives.combine`, as are the others.
      compression: for the values.
      prescale_factor: for the values before they are added.
      postscale_factor: for them afterwards.
      ignore_name_scope: for the names.
      process_set: the ranks that take part.
      gradient: whether this is a gradient of a compat.v1 optimizer.
    """

    op: ReduceOp
    name: str | None
    compression: type[Compressor]
    prescale_factor: float
    postscale_factor: float
    ignore_name_scope: bool
    process_set: ProcessSet
    gradient: bool

    def reduce(self, slices: tf.IndexedSlices) -> tf.IndexedSlices:
        """Combines slices over the ranks.

        Args:
          slices: values of shape [rows, ...], and indices, int32 or int64, of shape [rows].  The
            rows may differ by rank and be none; one index may have several.

        Returns:
          Slices of the same dtypes and dense_shape, the same bits on all ranks.  The values of one
          index are still to be added.

        Raises:
          ValueError: `init()` was not called; or `compression` is no compression.
          NotImplementedError: another op; or bool values with an average or factors.
          tf.errors.InvalidArgumentError: as many indices as rows are not there.
        """
        name = _wire_name(slices, self.name)
        with self._awaited(*first_awaited_of_slices(slices, self.name)):
            values = tf.convert_to_tensor(slices.values)
            self._check(values.dtype, name)
            indices = tf.convert_to_tensor(slices.indices)
            require_compression(_WHO, self.compression)
            self._check_rows(values, indices, name)
            rows = _once_each(values, indices)
            height = _height(slices)
        if _chooses(slices) and values.dtype != tf.bool:
            rows = self._shorter_way(rows, height, name)
        else:
            rows = self._gather(rows, None, name)
        return tf.IndexedSlices(*rows, dense_shape=slices.dense_shape)

    @property
    def _has_factors(self) -> bool:
        return (self.prescale_factor, self.postscale_factor) != (1.0, 1.0)

    @property
    def _counts_contributing(self) -> bool:
        """Whether averages are over the ranks that have not joined."""
        return settings.value("HOROVOD_JOIN_AVERAGE") == "contributing"

    def _over_ranks(self, tensor: tf.Tensor, ranks: tf.Tensor | None) -> tf.Tensor:
        """Divides by `ranks`, or if that is None by the number of all ranks of the set."""
        return over_size(tensor, self.process_set) if ranks is None else over(tensor, ranks)

    def _check(self, dtype: tf.DType, name: str) -> None:
        who = f"allreduce of IndexedSlices '{name}'"
        if self.op not in (Average, Sum):
            raise NotImplementedError(
                f"{who}: op is {self.op.name}, but slices can only be summed or averaged; pass "
                "tf.convert_to_tensor(slices), or sparse_as_dense=True"
            )
        if dtype == tf.bool and (self.op == Average or self._has_factors):
            raise NotImplementedError(
                f"{who}: bool has no average and no factors, but op is {self.op.name}, "
                f"prescale_factor {self.prescale_factor} and postscale_factor "
                f"{self.postscale_factor}; use op=Sum, which is 'or'"
            )

    def _check_rows(self, values: tf.Tensor, indices: tf.Tensor, name: str) -> None:
        """Refuses slices whose indices are not one for each row."""
        if indices.shape.rank in (None, 1) and values.shape[:1].is_compatible_with(indices.shape):
            return
        raise tf.errors.InvalidArgumentError(
            None,
            None,
            f"allreduce of IndexedSlices '{name}': values have shape {values.shape} and indices "
            f"{indices.shape}; there must be one index for each row",
        )

    @contextlib.contextmanager
    def _awaited(self, op_type: str, name: str) -> Iterator[Callable[..., tf.Tensor]]:
        """As `_raw.awaited`, with the attributes that all ops of the reduction share."""
        shared = {"ignore_name_scope": self.ignore_name_scope, "gradient": self.gradient}
        with _raw.awaited(op_type, name, self.process_set, _WHO) as call:
            yield functools.partial(call, **shared)

    def _call(self, op_type: str, tensor: tf.Tensor, name: str, **attrs: Any) -> tf.Tensor:
        with self._awaited(op_type, name) as call:
            return call(tensor, **attrs)

    def _gather(self, rows: _Rows, ranks: tf.Tensor | None, name: str) -> _Rows:
        """Gathers all ranks' rows, in rank order, and does what an average and factors ask for.

        Args:
          rows: of this rank.
          ranks: how many have not joined, where that is known and averages are over them.
          name: of the reduction.
        """
        values, indices = rows
        floating = values.dtype.is_floating
        with self._awaited("HorovodAllgather", f"{name}.values") as call:
            if floating:
                values = _times(values, self.prescale_factor)
            values, context = self.compression.compress(values)
            values = call(values)
        indices = self._call("HorovodAllgather", indices, f"{name}.indices")
        values = self.compression.decompress(values, context)
        if ranks is None and self.op == Average and self._counts_contributing:
            ranks = self._call("HorovodAllreduce", tf.constant(1), f"{name}.ranks", **_SUM)
        if not floating:
            return self._rounded(values, indices, ranks)
        if self.op == Average:
            values = self._over_ranks(values, ranks)
        return _times(values, self.postscale_factor), indices

    def _rounded(self, values: tf.Tensor, indices: tf.Tensor, ranks: tf.Tensor | None) -> _Rows:
        """Averages and multiplies integers, which are rounded once, as those of dense tensors are.

        So all rows of an index are added first.
        """
        # An allreduce has its factors as attributes, in float32.
        factors = [float(np.float32(f)) for f in (self.prescale_factor, self.postscale_factor)]
        factor = factors[0] * factors[1]
        if self.op == Sum and factor == 1.0:
            return values, indices
        values, indices = _once_each(values, indices)
        exact = values if factor == 1.0 else tf.cast(values, tf.float64) * factor
        if self.op == Average:
            exact = self._over_ranks(exact, ranks)
        return exact if factor == 1.0 else _clamped(exact, values.dtype), indices

    def _shorter_way(self, rows: _Rows, height: tf.Tensor, name: str) -> _Rows:
        """Gathers the rows, or adds them as a dense tensor, whichever all ranks choose."""
        values, indices = rows
        dense, ranks = self._is_dense_smaller(rows, height, name)
        if not self._counts_contributing:
            ranks = None
        known = tf.get_static_value(dense)  # in eager code; None in a graph
        # The rows before `split` are gathered, the others added: all or none.
        split = tf.where(dense, 0, tf.size(indices))
        parts = []
        if known is None or not known:
            parts.append(self._gather((values[:split], indices[:split]), ranks, name))
        if known is None or known:
            height = tf.where(dense, height, tf.zeros_like(height))
            parts.append(self._add((values[split:], indices[split:]), height, ranks, name))
        values, indices = (tf.concat(part, axis=0) for part in zip(*parts))
        return values, indices

    def _is_dense_smaller(
        self, rows: _Rows, height: tf.Tensor, name: str
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns whether dense tensors are fewer bytes, and how many ranks said theirs.

        Both have shape [] and are alike on all ranks.

        Gathered, every rank receives all ranks' rows and indices; dense, the tensor and a byte for
        each of its rows.  Where one rank's rows do not go into a dense tensor, or it does not know
        how high that is, all gather.
        """
        values, indices = rows
        with self._awaited("HorovodAllreduce", f"{name}.bytes") as call:
            shape = tf.shape(values, out_type=tf.int64)
            sent, _ = self.compression.compress(values[:0])
            row_bytes = tf.reduce_prod(shape[1:]) * sent.dtype.size
            at = tf.cast(indices, tf.int64)
            fit = tf.reduce_all((at >= 0) & (at < height)) & (height >= 0)
            mine = [
                shape[0] * (row_bytes + indices.dtype.size),
                height * (row_bytes + 1),
                tf.cast(tf.logical_not(fit), tf.int64),
                tf.constant(1, tf.int64),
            ]
            of_all = call(tf.stack(mine), **_SUM)
        gathered_bytes, dense_bytes, misfits, ranks = tf.unstack(of_all)
        return tf.equal(misfits, 0) & (gathered_bytes * ranks > dense_bytes), ranks

    def _add(self, rows: _Rows, height: tf.Tensor, ranks: tf.Tensor | None, name: str) -> _Rows:
        """Adds all ranks' rows as a dense tensor and returns those that any rank had, in order.

        A row that none had is left out although it is zero: an optimizer with a state for each row
        would change that state.
        """

        @tf.custom_gradient
        def as_of_a_gather(values: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
            # The gradient of an allgather is an average over the ranks, that of a sum is none.
            return tf.identity(values), lambda gradient: self._over_ranks(gradient, ranks)

        values, indices = rows
        with self._awaited("HorovodAllreduce", f"{name}.dense") as call:
            dense = _summed(as_of_a_gather(values), indices, height)
            compression, wire = in_op(self.compression, dense.dtype, self.op)
            compressed, context = compression.compress(dense)
            total = call(
                compressed,
                reduce_op=int(self.op),
                prescale_factor=self.prescale_factor,
                postscale_factor=self.postscale_factor,
                **wire,
            )
        mine = tf.math.unsorted_segment_sum(tf.ones_like(indices), indices, height) > 0
        anyones = self._call("HorovodAllreduce", mine, f"{name}.rows", **_SUM)
        had = tf.where(anyones)[:, 0]  # the sum of bools is "or"
        total = compression.decompress(total, context)
        return tf.gather(total, had), tf.cast(had, indices.dtype)


def _clamped(exact: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Casts float64 to integers as the core does: toward zero, and not beyond the type's range.

    `tf.saturate_cast` is wrong for int64 where NumPy 2 gives it that range.
    """
    most = float(dtype.max)  # of int64: one more, which no cast can make
    inside = tf.cast(tf.where(exact < most, tf.maximum(exact, float(dtype.min)), 0.0), dtype)
    return tf.where(exact >= most, tf.constant(dtype.max, dtype), inside)


def densified(slices: tf.IndexedSlices, like: Any, who: str) -> tf.Tensor:
    """Makes a dense tensor of slices, the values of one index added.

    Args:
      slices: as for `SlicesReduction.reduce`, of a numeric dtype.
      like: what the slices are the gradient of, a tensor or variable, or None; its shape counts
        where they have none.
      who: begins an error's text.

    Returns:
      A tensor of shape [height, ...] and the same dtype; zeros where there is no row.

    Raises:
      ValueError: the shape is not known.
    """
    shape = slices.dense_shape
    if shape is None:
        if like is None:
            raise ValueError(
                f"{who}: no dense tensor can be made of IndexedSlices without dense_shape; make "
                "them with one, or leave out sparse_as_dense"
            )
        shape = like.shape if like.shape.is_fully_defined() else tf.shape(like)
    values = tf.convert_to_tensor(slices.values)
    return _summed(values, slices.indices, tf.convert_to_tensor(shape)[0])


def _summed(values: tf.Tensor, places: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """Adds the rows of one place, in their order, to a tensor of `count` rows.

    16-bit floats are added in float32 and rounded once.
    """
    wide = tf.cast(values, _WIDER.get(values.dtype, values.dtype))
    return tf.cast(tf.math.unsorted_segment_sum(wide, places, count), values.dtype)


def _once_each(values: tf.Tensor, indices: tf.Tensor) -> _Rows:
    """Adds the rows of one index; bools stay as they are, for TensorFlow adds none."""
    if values.dtype == tf.bool:
        return values, indices
    each, places = tf.unique(indices)  # in the order in which they first come
    count = tf.size(each)
    values = tf.cond(
        count < tf.size(indices),
        lambda: _summed(values, places, count),
        lambda: tf.identity(values),
    )
    return values, each


def _times(values: tf.Tensor, factor: float) -> tf.Tensor:
    """Multiplies floats, 16-bit ones in float32."""
    if factor == 1.0:
        return values
    wide = tf.cast(values, _WIDER.get(values.dtype, values.dtype))
    return tf.cast(wide * tf.cast(factor, wide.dtype), values.dtype)


def _height(slices: tf.IndexedSlices) -> tf.Tensor:
    """Returns the rows of the dense tensor, int64 of shape []; -1 if they are not known."""
    if slices.dense_shape is None:
        return tf.constant(-1, tf.int64)
    return tf.cast(tf.convert_to_tensor(slices.dense_shape)[0], tf.int64)
