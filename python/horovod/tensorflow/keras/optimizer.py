"""Keras optimizers that apply the gradients of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Adasum, Average, ReduceOp
from horovod.tensorflow._subclass import Extension
from horovod.tensorflow.arguments import require_bool
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.gradient_options import check_passes, checked_groups
from horovod.tensorflow.keras import _override_points
from horovod.tensorflow.keras.reducing import StepReduction
from horovod.tensorflow.reduction import GradientReduction, Transform

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "distributed_optimizer"]


def _check(who: str, optimizer: Any) -> None:
    """Raises ValueError for what is no Keras optimizer, or reduces already."""
    if isinstance(optimizer, Extension) or isinstance(
        _override_points.inner_optimizer(optimizer), Extension
    ):
        raise ValueError(
            f"{who}: the optimizer is distributed already: its gradients would be reduced twice; "
            "wrap it once"
        )
    if _override_points.is_replaced_by_keras(optimizer):
        kind = type(optimizer).__name__
        raise ValueError(
            f"{who}: with TensorFlow 2 behavior off, Keras makes a legacy optimizer of a new one, "
            f"and that would not reduce; pass a tf.keras.optimizers.legacy.{kind}"
        )
    if _override_points.is_keras(optimizer):
        return
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        cure = "for a tf.compat.v1 optimizer use horovod.tensorflow.DistributedOptimizer"
    elif isinstance(optimizer, str):
        cure = f"pass tf.keras.optimizers.get({optimizer!r})"
    elif isinstance(optimizer, type):
        cure = f"make one first: {optimizer.__name__}(...)"
    else:
        cure = "pass an optimizer of Keras, such as tf.keras.optimizers.SGD(0.1)"
    raise ValueError(f"{who}: {optimizer!r} is not a Keras optimizer; {cure}")


def distributed_optimizer(
    optimizer: Any,
    *,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | Sequence[Sequence[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Sequence[Any] | None = None,
    scale_local_gradients: bool = True,
    step_counts_updates: bool = False,
    transform_gradients: Transform | None = None,
) -> Any:
    """Makes a Keras optimizer apply the gradients of all ranks; see `DistributedOptimizer`."""
    who = name or f"Distributed{type(optimizer).__name__}"
    _check(who, optimizer)
    require_bool(who, "average_aggregated_gradients", average_aggregated_gradients)
    require_bool(who, "step_counts_updates", step_counts_updates)
    check_passes(who, backward_passes_per_step, average_aggregated_gradients, ReduceOp(op))
    backward_passes_per_step = int(backward_passes_per_step)
    layers = _layers(who, local_layers)
    if op == Adasum:
        raise ValueError(
            f"{who}: op=Adasum combines what each rank's update changed, which is built for "
            "tf.compat.v1.train optimizers alone; pass one, such as "
            "tf.compat.v1.train.MomentumOptimizer(0.01, 0.9), to "
            "horovod.tensorflow.DistributedOptimizer, or use op=hvd.Average"
        )
    options: dict[str, Any] = {
        "scope": f"{who}_Allreduce",
        "op": ReduceOp(op),
        "compression": compression,
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "sparse_as_dense": sparse_as_dense,
        "gradient_predivide_factor": gradient_predivide_factor,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
        "ends_training": False,
        "groups": checked_groups(who, num_groups, groups),
        "transform_gradients": transform_gradients,
    }

    def new_reduction() -> StepReduction:
        made = StepReduction(
            reduction=GradientReduction(**options),
            step_counts_updates=step_counts_updates,
            local_layers=layers,
        )
        if backward_passes_per_step > 1:
            made.sums = LocalGradientAggregationHelper(
                backward_passes_per_step,
                made.reduce,
                sparse_as_dense=True,
                average_aggregated_gradients=average_aggregated_gradients,
                name=f"{made.reduction.scope}_Sum",
            )
        return made

    return _override_points.distributed(optimizer, new_reduction(), new_reduction)


def _layers(who: str, local_layers: Any) -> list[Any]:
    """Returns layers as a list."""
    if local_layers is None:
        return []
    layers = list(local_layers) if isinstance(local_layers, (list, tuple)) else [local_layers]
    for layer in layers:
        if not hasattr(layer, "trainable_weights"):
            raise ValueError(
                f"{who}: {layer!r} of local_layers is not a Keras layer; pass layers, and single "
                "variables to register_local_var()"
            )
    return layers


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
    *,
    step_counts_updates: bool = False,
    transform_gradients: Transform | None = None,
) -> Any:
    """Makes a Keras optimizer apply the gradients of all ranks.

    It is still an optimizer of its class, shares the state of the one it is made of, and is saved
    as that one.  Gradients are reduced before they are clipped (`clipnorm`, `clipvalue`,
    `global_clipnorm`), decayed or tested for finite values, so that all ranks do the same.  All
    ranks must train the same variables.

    A LossScaleOptimizer may be around it, which `compile` makes by itself under mixed_float16, or
    in it: all ranks then skip the same steps.

    Example:
      >>> w = tf.Variable(1.0)
      >>> optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.5))
      >>> _ = optimizer.apply_gradients([(tf.constant(hvd.rank() + 1.0), w)])
      >>> w.numpy()  # 2 ranks: 0.25
      0.5

    Args:
      optimizer: of Keras 2 (`optimizers` or `optimizers.legacy`) or Keras 3.
      name: of the ops; default: "Distributed" and the optimizer's class.
      device_dense: where to place the ops of dense gradients; default: as TensorFlow decides.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: what to make of a gradient for the wire, such as `Compression.fp16`.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` before the reduction.
      gradient_predivide_factor: Average divides by this before the sum, and by size / this after.
      op: Average or Sum.
      backward_passes_per_step: how many calls add up their gradients, on this rank, before one
        reduces and applies the sum; `tf.IndexedSlices` become dense there.  Variables and slots
        move in that call only, while `optimizer.iterations` counts every call.
      average_aggregated_gradients: whether the sum is divided by the number of calls.
      num_groups: deprecated: as `groups`, a number.
      groups: into how many groups to split the gradients, each of which travels together; or
        lists of variables, whose gradients do.
      process_set: the ranks that take part.
      scale_local_gradients: whether the gradients of variables given to `register_local_var` are
        divided by the number of ranks.  An optimizer with `global_clipnorm`, or a loss scale that
        adapts itself, refuses such variables in the first step.
      step_counts_updates: whether `optimizer.iterations`, and with it a schedule of the learning
        rate, counts updates instead of calls.
      transform_gradients: a function of a list of (gradient, variable) pairs that returns as many;
        called just before the reduction, with this rank's gradients, or their sums or averages over
        the passes.  With loss scaling of Keras 3 these are still scaled.  Its `fit` has AutoGraph
        off: use tf.cond or tf.where there.

    Returns:
      An optimizer of a subclass of the given one's class.

    Raises:
      ValueError: not a Keras optimizer, or one that is distributed already; op=Adasum, which
        `tf.compat.v1.train` optimizers have; options that contradict each other, Keras 3's
        gradient_accumulation_steps among them.
    """
    return distributed_optimizer(
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


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: int | list[list[Any]] | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Sequence[Any] | None = None,
    scale_local_gradients: bool = True,
    *,
    step_counts_updates: bool = False,
    transform_gradients: Transform | None = None,
) -> Any:
    """Makes a Keras optimizer apply the gradients of all ranks, but for some layers.

    The variables of those layers are trained by this rank alone, so that they may differ between
    ranks; `callbacks.BroadcastGlobalVariablesCallback(local_variables=...)` leaves them alone too.
    With `global_clipnorm`, or a loss scale that adapts itself, the first step raises ValueError:
    gradients that differ between ranks would change the steps of all variables.

    Example:
      >>> body, head = tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)
      >>> model = tf.keras.Sequential([body, head])
      >>> sgd = tf.keras.optimizers.SGD(0.1)
      >>> model.compile(hvd.PartialDistributedOptimizer(sgd, local_layers=[head]), "mse")
      >>> model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0).epoch
      [0]

    Args:
      optimizer: as for `DistributedOptimizer`, as are all but `local_layers`.
      name: of the ops.
      device_dense: where to place the ops of dense gradients.
      device_sparse: the same for `tf.IndexedSlices`.
      compression: for the wire.
      sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices`.
      gradient_predivide_factor: Average divides by this before the sum.
      op: Average or Sum.
      backward_passes_per_step: how many calls add up their gradients.
      average_aggregated_gradients: whether the sum is divided by the number of calls.
      groups: of gradients that travel together.
      process_set: the ranks that take part.
      local_layers: a Keras layer or a list of layers, built or not yet.
      scale_local_gradients: whether the gradients of `local_layers` are divided by the number of
        ranks, as an average divides the others.
      step_counts_updates: whether `optimizer.iterations` counts updates.
      transform_gradients: a function of (gradient, variable) pairs.

    Returns:
      An optimizer of a subclass of the given one's class.

    Raises:
      ValueError: as `DistributedOptimizer`; or one of `local_layers` is no layer.
    """
    return distributed_optimizer(
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
        groups=groups,
        process_set=process_set,
        local_layers=local_layers,
        scale_local_gradients=scale_local_gradients,
        step_counts_updates=step_counts_updates,
        transform_gradients=transform_gradients,
    )
