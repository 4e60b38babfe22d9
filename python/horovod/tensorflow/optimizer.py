"""Optimizers that apply the gradients of all ranks."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Average, ReduceOp
from horovod.tensorflow import _compat
from horovod.tensorflow.arguments import require_bool
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradient_options import check_passes, checked_groups
from horovod.tensorflow.optimizer_v1 import distributed_v1_optimizer
from horovod.tensorflow.reduction import GradientReduction, Transform
from horovod.tensorflow.warned_once import warn_once

__all__ = ["DistributedOptimizer"]


def _is_torch(optimizer: Any) -> bool:
    return any(base.__module__.split(".")[0] == "torch" for base in type(optimizer).__mro__)


def _not_an_optimizer(who: str, optimizer: Any) -> str:
    """Returns the error's text for what is no optimizer of TensorFlow."""
    if isinstance(optimizer, type):
        hint = f"it is a class; pass an instance, such as {optimizer.__name__}(0.01)"
    elif _is_torch(optimizer):
        hint = "it is PyTorch's, and this package is for TensorFlow alone"
    else:
        hint = "pass a tf.compat.v1.train or a Keras optimizer"
    return f"{who}: {optimizer!r} is not an optimizer of TensorFlow: {hint}"


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
    *,
    step_counts_updates: bool = False,
    transform_gradients: Transform | None = None,
) -> Any:
    """Makes an optimizer apply the gradients of all ranks.

    It is still an optimizer of its class and shares the state of the one it is made of.  All ranks
    must train the same variables.

    A `tf.compat.v1.train` optimizer reduces gradients in `compute_gradients`, so that clipping and
    the test of a loss scale come after.  It goes around or into
    `tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer`, around it alone with
    `backward_passes_per_step` above 1.

    With op=Adasum (arXiv:2006.02924), which is for `tf.compat.v1.train` optimizers, it is not
    gradients that the ranks exchange: each applies its own, `backward_passes_per_step` times, and
    what this changed in the variables is combined.  Slots are then each rank's own.

    Example:
      >>> w = tf.Variable(1.0)
      >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5))
      >>> _ = optimizer.apply_gradients([(tf.constant(hvd.rank() + 1.0), w)])
      >>> w.numpy()  # 2 ranks: 0.25
      0.5

    Args:
      optimizer: a `tf.compat.v1.train` optimizer, or one of Keras.
      name: of the ops; default: "Distributed" and the optimizer's class.
      use_locking: whether the updates of variables take locks; True sets it on the optimizer.  For
        tf.compat.v1 alone.
      device_dense: where to place the ops of dense gradients; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of a gradient for the wire, such as `Compression.fp16`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` (gradients of an
        embedding, say) before the reduction: faster when most rows have a gradient.
      backward_passes_per_step: how many passes make a step.  Gradients are added up on their rank;
        variables and slots change in the last pass alone, from the reduced sum.  Sums and counts
        are saved in no checkpoint: those of a `tf.compat.v1` optimizer lie in local variables and
        begin anew in a new session.
      op: Average, Sum or Adasum; Adasum for tf.compat.v1 alone.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      average_aggregated_gradients: whether the sum of a step's passes is divided by their number.
      num_groups: deprecated: as `groups`, a number.
      groups: gradients that wait for each other and then travel together: a number of groups to
        divide all gradients into, or a list of lists of variables, whose other gradients travel
        alone.
      process_set: the ranks that take part.
      scale_local_gradients: whether the gradients of variables given to `register_local_var` are
        divided by the number of ranks.
      step_counts_updates: whether `global_step`, or `iterations` of Keras, counts updates; by
        default it counts every pass.
      transform_gradients: a function of a list of (gradient, variable) pairs that returns as many,
        in their order; called just before the reduction, with this rank's gradients, or their sums
        or averages over the passes.  With op=Adasum, in every pass.  Under a loss scale optimizer
        these may still be scaled; see docs/optimizers.md.

    Returns:
      An optimizer of a subclass of the given one's class.

    Raises:
      ValueError: not an optimizer, or one that is distributed already; options that contradict each
        other, op=Adasum with a Keras optimizer among them; a number of passes below 1.  From
        `compute_gradients`: a variable in `groups` that is not trained; a loss scale that does not
        work with the options.
    """
    who = name or f"Distributed{type(optimizer).__name__}"
    op = ReduceOp(op)
    require_bool(who, "average_aggregated_gradients", average_aggregated_gradients)
    require_bool(who, "step_counts_updates", step_counts_updates)
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        check_passes(who, backward_passes_per_step, average_aggregated_gradients, op)
        if use_locking:
            _compat.use_locking(optimizer)
        reduction = GradientReduction(
            scope=f"{who}_Allreduce",
            op=op,
            compression=compression,
            device_dense=device_dense,
            device_sparse=device_sparse,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
            ends_training=True,
            groups=checked_groups(who, num_groups, groups),
            transform_gradients=transform_gradients,
        )
        return distributed_v1_optimizer(
            optimizer,
            reduction,
            backward_passes_per_step=int(backward_passes_per_step),
            average_aggregated_gradients=average_aggregated_gradients,
            step_counts_updates=step_counts_updates,
        )
    # Only now, since they import Keras.
    points = importlib.import_module("horovod.tensorflow.keras._override_points")
    keras = importlib.import_module("horovod.tensorflow.keras.optimizer")
    if isinstance(optimizer, type) or not points.is_keras(optimizer):
        raise ValueError(_not_an_optimizer(who, optimizer))
    if use_locking:
        warn_once("use_locking is for tf.compat.v1 optimizers; Keras has no such option")
    return keras.distributed_optimizer(
        optimizer,
        name=name,
        device_dense=device_dense,
        device_sparse=device_sparse,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
        step_counts_updates=step_counts_updates,
        transform_gradients=transform_gradients,
    )
