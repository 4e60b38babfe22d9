"""A gradient tape that gives the gradients of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow._subclass import Extension, extended
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.reduction import GradientReduction, refuse_groups

__all__ = ["DistributedGradientTape"]


class _ReducingTape(Extension):
    """A `tf.GradientTape` whose `gradient` reduces over the ranks.

    `jacobian` and `batch_jacobian` are the tape's own: they stay on this rank.
    """

    __slots__ = ()

    _hvd_reduction: GradientReduction

    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        use_generic_names: bool = False,
    ) -> Any:
        """Computes this rank's gradients and reduces them over the ranks.

        Args:
          target: as for `tf.GradientTape.gradient`, as are the next three.
          sources: variables or tensors, in any nested structure.
          output_gradients: one for each element of the target.
          unconnected_gradients: what stands for a gradient that there is none of.
          use_generic_names: whether ranks match gradients by their place among the sources rather
            than by the sources' names, which may differ between ranks.

        Returns:
          The reduced gradients, in the structure of `sources`.
        """
        gradients = super().gradient(  # type: ignore[misc]
            target, sources, output_gradients, unconnected_gradients
        )
        reduced = self._hvd_reduction.reduce(
            tf.nest.flatten(gradients), tf.nest.flatten(sources), use_generic_names
        )
        return tf.nest.pack_sequence_as(gradients, reduced)

    # The tape's own jacobian calls gradient() inside a vectorised loop, where a collective has no
    # meaning; so these two go past the methods above.

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Returns `tf.GradientTape.jacobian` of this rank alone."""
        return self._hvd_original.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """Returns `tf.GradientTape.batch_jacobian` of this rank alone."""
        return self._hvd_original.batch_jacobian(*args, **kwargs)

    def register_local_source(self, source: Any) -> None:
        """Leaves the gradient of a source on its rank; see `scale_local_gradients`.

        Args:
          source: one of the variables or tensors that `gradient` is asked for.
        """
        self._hvd_reduction.keep_local(source)


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes a tape give the gradients of all ranks.

    It may be wrapped before, while or after it records: both share one state.

    Args:
      gradtape: a `tf.GradientTape`, persistent or not.
      device_dense: where to place the ops of dense gradients; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of a gradient for the wire, such as `Compression.fp16`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` before the reduction.
      op: Average or Sum.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      num_groups: the older name of `groups`; not built yet.
      groups: not built yet.
      process_set: the ranks that take part.
      scale_local_gradients: whether the gradients of sources given to `register_local_source` are
        divided by the number of ranks.

    Returns:
      A tape of a subclass of the given one's class.

    Raises:
      NotImplementedError: something that is not built yet is asked for.
      ValueError: not a tape; or options that contradict each other.
    """
    who = "DistributedGradientTape"
    refuse_groups(who, num_groups, groups)
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"{who}: {gradtape!r} is not a tf.GradientTape")
    reduction = GradientReduction(
        scope=f"{who}_Allreduce",
        op=ReduceOp(op),
        compression=compression,
        device_dense=device_dense,
        device_sparse=device_sparse,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        ends_training=False,
    )
    return extended(gradtape, _ReducingTape, reduction)
