"""Optimizers that apply the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow._subclass import Extension, extended
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.reduction import GradientReduction, refuse_groups

__all__ = ["DistributedOptimizer"]


class _ReducingOptimizer(Extension):
    """A `tf.compat.v1.train` optimizer whose `compute_gradients` reduces them over the ranks.

    The rest (apply_gradients, slots, variables, names in checkpoints) is the optimizer's own.
    """

    __slots__ = ()

    _hvd_reduction: GradientReduction

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Computes this rank's gradients and reduces them over the ranks.

        Args:
          *args: those of the optimizer's own `compute_gradients`.
          **kwargs: the same.

        Returns:
          Pairs (gradient, variable), as `apply_gradients` takes them.
        """
        pairs = list(super().compute_gradients(*args, **kwargs))  # type: ignore[misc]
        variables = [variable for _, variable in pairs]
        gradients = self._allreduce_grads([gradient for gradient, _ in pairs], variables)
        return list(zip(gradients, variables))

    def register_local_var(self, var: Any) -> None:
        """Leaves the gradient of a variable on its rank; see `scale_local_gradients`.

        Args:
          var: one of the variables that are trained.
        """
        self._hvd_reduction.keep_local(var)

    def _allreduce_grads(
        self, grads: Sequence[Any], vars: Sequence[Any] | None = None
    ) -> list[Any]:
        """Reduces gradients; programs that compute their own call this."""
        return self._hvd_reduction.reduce(grads, vars)

    def _allreduce(self, grads: Any, vars: Any = None) -> Any:
        """Reduces one gradient, or a list of them."""
        if isinstance(grads, (list, tuple)):
            return self._allreduce_grads(grads, vars)
        return self._allreduce_grads([grads], None if vars is None else [vars])[0]


def _is_keras(optimizer: Any) -> bool:
    return any(
        base.__module__.split(".")[0] in ("keras", "tf_keras") or ".keras." in base.__module__
        for base in type(optimizer).__mro__
    )


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Makes an optimizer apply the gradients of all ranks.

    It is still an optimizer of its class and shares the state of the one it is made of; its
    `compute_gradients` reduces what that one computes.  All ranks must train the same variables.

    Args:
      optimizer: a `tf.compat.v1.train` optimizer.
      name: of the ops; default: "Distributed" and the optimizer's class.
      use_locking: whether the updates of variables take locks; True sets it on the optimizer.
      device_dense: where to place the ops of dense gradients; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of a gradient for the wire, such as `Compression.fp16`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` (gradients of an
        embedding, say) before the reduction: faster when most rows have a gradient.
      backward_passes_per_step: 1; more are not built yet.
      op: Average or Sum.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      average_aggregated_gradients: whether the sum of a step's backward passes is divided by
        their number: with one pass both are the same.
      num_groups: the older name of `groups`; not built yet.
      groups: not built yet.
      process_set: the ranks that take part.
      scale_local_gradients: whether the gradients of variables given to `register_local_var` are
        divided by the number of ranks.

    Returns:
      An optimizer of a subclass of the given one's class.

    Raises:
      NotImplementedError: something that is not built yet is asked for.
      ValueError: not an optimizer; or options that contradict each other.
    """
    who = name or f"Distributed{type(optimizer).__name__}"
    refuse_groups(who, num_groups, groups)
    if backward_passes_per_step < 1:
        raise ValueError(
            f"{who}: backward_passes_per_step={backward_passes_per_step}; it must be 1 or more"
        )
    if backward_passes_per_step > 1:
        raise NotImplementedError(
            f"{who}: backward_passes_per_step={backward_passes_per_step} is not built yet; use 1"
        )
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if _is_keras(optimizer):
            raise NotImplementedError(
                f"{who}: Keras optimizers are not built yet; use a tf.compat.v1.train optimizer, "
                "or hvd.DistributedGradientTape with the optimizer as it is"
            )
        raise ValueError(
            f"{who}: {optimizer!r} is not an optimizer; pass a tf.compat.v1.train optimizer"
        )
    if use_locking:
        optimizer._use_locking = True
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
        ends_training=True,
    )
    return extended(optimizer, _ReducingOptimizer, reduction)
