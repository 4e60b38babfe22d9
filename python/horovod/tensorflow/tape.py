"""Gradient tapes that give the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow._subclass import Extension, extended
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradient_options import checked_groups
from horovod.tensorflow.reduction import GradientReduction, Transform

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]


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


class _PartialTape(_ReducingTape):
    """One that leaves the gradients of some layers on their rank."""

    __slots__ = ("_hvd_last", "_hvd_local_layers")

    _hvd_last: tuple[Any, Any]
    _hvd_local_layers: list[Any]

    def gradient(self, target: Any, sources: Any, *args: Any, **kwargs: Any) -> Any:
        """Computes this rank's gradients and reduces those that are not local.

        Args:
          target: as for `DistributedGradientTape`, as are the rest.
          sources: variables or tensors, in any nested structure.
          *args: the same.
          **kwargs: the same.

        Returns:
          The gradients, in the structure of `sources`.
        """
        # A layer has its variables only once it was called.
        for layer in self._hvd_local_layers:
            for variable in layer.trainable_variables:
                self.register_local_source(variable)
        gradients = super().gradient(target, sources, *args, **kwargs)
        object.__setattr__(self, "_hvd_last", (gradients, sources))
        return gradients

    def get_local_and_global_gradients(
        self, gradients: Any = None, sources: Any = None
    ) -> tuple[list[Any], list[Any]]:
        """Divides gradients into those that stayed on their rank and those that were reduced.

        Args:
          gradients: what `gradient` returned; default: what it did last.
          sources: the variables or tensors they belong to; default: those of the last call.

        Returns:
          The local gradients and the others, each in the order of the sources.

        Raises:
          ValueError: nothing is given and `gradient` was not called; or there are not as many
            gradients as sources.
        """
        last_gradients, last_sources = self._hvd_last
        if sources is None and last_sources is None:
            raise ValueError(
                "get_local_and_global_gradients: call gradient() first, or pass gradients and "
                "their sources"
            )
        flat_gradients = tf.nest.flatten(last_gradients if gradients is None else gradients)
        flat_sources = tf.nest.flatten(last_sources if sources is None else sources)
        if len(flat_gradients) != len(flat_sources):
            raise ValueError(
                f"get_local_and_global_gradients: {len(flat_gradients)} gradients for "
                f"{len(flat_sources)} sources; pass the gradients of these sources"
            )
        divided: tuple[list[Any], list[Any]] = ([], [])
        for gradient, source in zip(flat_gradients, flat_sources):
            divided[0 if self._hvd_reduction.is_local(source) else 1].append(gradient)
        return divided


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
    *,
    transform_gradients: Transform | None = None,
) -> Any:
    """Makes a tape give the gradients of all ranks.

    It may be wrapped before, while or after it records: both share one state.

    Example:
      >>> w = tf.Variable(1.0)
      >>> with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
      ...     loss = w * (hvd.rank() + 2.0)
      >>> tape.gradient(loss, w).numpy()  # 2 ranks: 2.5
      2.0

    Args:
      gradtape: a `tf.GradientTape`, persistent or not.
      device_dense: where to place the ops of dense gradients; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of a gradient for the wire, such as `Compression.fp16`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` before the reduction.
      op: Average, Sum or Adasum.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      num_groups: deprecated: as `groups`, a number.
      groups: gradients that wait for each other and then travel together: a number of groups to
        divide all gradients into, or a list of lists of sources, whose other gradients travel
        alone.
      process_set: the ranks that take part.
      scale_local_gradients: whether the gradients of sources given to `register_local_source` are
        divided by the number of ranks.
      transform_gradients: a function of a list of (gradient, source) pairs that returns as many, in
        their order; called just before the reduction.

    Returns:
      A tape of a subclass of the given one's class.

    Raises:
      ValueError: not a tape, or one that is distributed already; or options that contradict each
        other.  From `gradient`: a variable in `groups` that is none of the sources.
    """
    who = "DistributedGradientTape"
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
        groups=checked_groups(who, num_groups, groups),
        transform_gradients=transform_gradients,
    )
    return extended(gradtape, _ReducingTape, reduction)


def PartialDistributedGradientTape(
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
    local_layers: Any = None,
    scale_local_gradients: bool = True,
    *,
    transform_gradients: Transform | None = None,
) -> Any:
    """Makes a tape give the gradients of all ranks, but for some layers that each rank has alone.

    Example:
      >>> dense, head = tf.keras.layers.Dense(1), tf.keras.layers.Dense(1)
      >>> tape = hvd.PartialDistributedGradientTape(tf.GradientTape(), local_layers=[head])
      >>> with tape:
      ...     loss = tf.reduce_sum(head(dense(tf.ones([1, 2]))))
      >>> gradients = tape.gradient(loss, dense.trainable_variables + head.trainable_variables)
      >>> [gradient.shape.as_list() for gradient in gradients]  # the last two are this rank's own
      [[2, 1], [1], [1, 1], [1]]

    Args:
      gradtape: as for `DistributedGradientTape`, as are the rest.
      device_dense: the same.
      device_sparse: the same.
      compression: the same.
      sparse_as_dense: the same.
      op: the same.
      gradient_predivide_factor: the same.
      num_groups: the same.
      groups: the same.
      process_set: the same.
      local_layers: a Keras layer or a list of them, built or not, whose gradients stay on their
        rank.
      scale_local_gradients: whether these are divided by the number of ranks.
      transform_gradients: as for `DistributedGradientTape`.

    Returns:
      A tape of a subclass of the given one's class.  Its
      `get_local_and_global_gradients(gradients, sources)` tells the two kinds apart.

    Raises:
      ValueError: something in `local_layers` is no layer; and as for `DistributedGradientTape`.
    """
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, Sequence) else [layers]
    for layer in layers:
        if not hasattr(type(layer), "trainable_variables"):
            raise ValueError(
                f"PartialDistributedGradientTape: local_layers has {layer!r}, which is no layer; "
                "pass Keras layers, and variables to register_local_source()"
            )
    plain = DistributedGradientTape(
        gradtape,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        transform_gradients=transform_gradients,
    )
    return extended(
        gradtape,
        _PartialTape,
        plain._hvd_reduction,
        _hvd_last=(None, None),
        _hvd_local_layers=layers,
    )
