"""What TensorFlow's versions do differently, in one place; each entry has a canary test.

Private names of TensorFlow are touched here and nowhere else; docs/override-points.md lists them
and those of Keras.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.ops import control_flow_util
from tensorflow.python.saved_model import save_context

__all__ = [
    "RUNS_IN_ANY_ORDER",
    "as_outside",
    "cond",
    "executing_eagerly",
    "graph_is_eager_outside",
    "handle",
    "in_xla",
    "let_run_in_any_order",
    "saving_model",
    "outer_graph",
    "scaled_optimizer",
    "scales_loss_dynamically",
    "tape_may_record",
    "tensorflow_variable",
    "use_locking",
    "without_autograph",
]

RUNS_IN_ANY_ORDER = frozenset(
    {
        "HorovodAllgather",
        "HorovodAllreduce",
        "HorovodAlltoall",
        "HorovodBroadcast",
        "HorovodGroupedAllgather",
        "HorovodGroupedAllreduce",
        "HorovodGroupedReducescatter",
        "HorovodLocalRank",
        "HorovodLocalSize",
        "HorovodProcessSetIncluded",
        "HorovodRank",
        "HorovodReducescatter",
        "HorovodSize",
    }
)
"""Op types that `tf.function` need not run in program order.

The coordinator gives the collectives one order on all ranks.  A barrier and a join are not here:
they keep their place among printing, Python functions and the like.
"""


def let_run_in_any_order() -> None:
    """Keeps `tf.function` from chaining the collectives one after another.

    They are stateful ops, or TensorFlow would fold, merge and prune them.  But automatic control
    dependencies run stateful ops in program order, so that each collective would wait for the one
    before it: no fusion, and no overlap with the backward pass.  The set of exempt types is a
    private frozenset, so it is replaced by a larger one.
    """
    try:
        from tensorflow.python.framework import auto_control_deps

        known = auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS
    except (AttributeError, ImportError) as error:
        warnings.warn(
            f"TensorFlow {tf.__version__} has no list of order-insensitive stateful ops ({error}): "
            "collectives inside tf.function run one after another, which is correct but slow",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS = known | RUNS_IN_ANY_ORDER


_Function = TypeVar("_Function", bound=Callable[..., Any])

# What the status that `without_autograph` sets carries: the one outside.
_OUTSIDE = "_hvd_outside"


def without_autograph(function: _Function) -> _Function:
    """Keeps AutoGraph from converting a function and what it calls, but for `as_outside`."""

    @tf.autograph.experimental.do_not_convert
    def unconverted(outside: Any, args: Any, kwargs: Any) -> Any:
        setattr(tf.__internal__.autograph.control_status_ctx(), _OUTSIDE, outside)
        return function(*args, **kwargs)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        return unconverted(_status_outside(), args, kwargs)

    return run  # type: ignore[return-value]


def as_outside(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a user's function as AutoGraph would have it outside of `without_autograph`.

    Converted where that is code of a `tf.function`; elsewhere as it is.
    """
    converted: Callable[..., Any] = tf.__internal__.autograph.tf_convert(
        function, _status_outside()
    )
    return converted


def _status_outside() -> Any:
    status = tf.__internal__.autograph.control_status_ctx()
    return getattr(status, _OUTSIDE, status)


def executing_eagerly() -> bool:
    """Returns whether an op called here runs at once, rather than becoming a node of a graph."""
    return bool(tf.executing_eagerly())


def graph_is_eager_outside() -> bool:
    """Returns whether this is eager code or a `tf.function`, rather than a compat.v1 graph."""
    return bool(tf.compat.v1.executing_eagerly_outside_functions())


def outer_graph() -> Any:
    """Returns the compat.v1 graph that code runs in, outside of all functions; None if in none."""
    if graph_is_eager_outside():
        return None
    with tf.init_scope():
        return tf.compat.v1.get_default_graph()


def cond(
    predicate: tf.Tensor,
    true_fn: Callable[[], list[tf.Tensor]],
    false_fn: Callable[[], list[tf.Tensor]],
    name: str,
) -> list[tf.Tensor]:
    """Returns what one of two functions returns: `tf.cond`, also of ref variables.

    In a compat.v1 graph `tf.cond` makes functions of its branches where control flow v2 is on, as
    it is by default; no function can hold a ref variable.  There it is built the older way.

    Args:
      predicate: a bool scalar.
      true_fn: makes a list of tensors.
      false_fn: makes a list of as many, of the same dtypes.
      name: of the scope.
    """
    if executing_eagerly():
        return true_fn() if predicate else false_fn()
    if tf.compat.v1.get_default_graph().building_function or (
        not tf.compat.v1.control_flow_v2_enabled()
    ):
        return list(tf.cond(predicate, true_fn, false_fn, name=name))
    tf.compat.v1.disable_control_flow_v2()
    try:
        return list(tf.cond(predicate, true_fn, false_fn, name=name))
    finally:
        tf.compat.v1.enable_control_flow_v2()


def scaled_optimizer(optimizer: Any) -> Any:
    """Returns the optimizer that compat.v1's loss scale optimizer is around; None for others."""
    scaler = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    return optimizer._optimizer if isinstance(optimizer, scaler) else None


def scales_loss_dynamically(optimizer: Any) -> bool:
    """Returns whether this is compat.v1's loss scale optimizer, with a scale that it adapts.

    Such a one skips a step whose gradients are not finite.
    """
    if scaled_optimizer(optimizer) is None:
        return False
    return isinstance(optimizer._loss_scale, tf.compat.v1.mixed_precision.DynamicLossScale)


def use_locking(optimizer: tf.compat.v1.train.Optimizer) -> None:
    """Makes the updates of an optimizer take locks, as its constructor's `use_locking` does."""
    optimizer._use_locking = True


def tensorflow_variable(variable: Any) -> Any:
    """Returns the TensorFlow variable behind one of Keras 3; any other as it is."""
    is_tensorflow = isinstance(variable, (tf.Variable, tf.compat.v1.Variable))
    return variable if is_tensorflow else getattr(variable, "value", variable)


def handle(variable: Any) -> tf.Tensor:
    """Returns what a raw op takes as a variable: the resource, or the reference of a ref variable.

    Args:
      variable: as `tensorflow_variable` returns.
    """
    return variable.handle if hasattr(variable, "handle") else variable._ref()


def tape_may_record() -> bool:
    """Returns whether a `tf.GradientTape` may record an op called here in eager code."""
    return bool(record.could_possibly_record())


def saving_model() -> bool:
    """Returns whether what is called here goes into a SavedModel.

    Keras traces its layers anew for one, training included; what is traced then must hold no op
    of ours, or the model would not load elsewhere.
    """
    return bool(save_context.in_save_context())


def in_xla() -> bool:
    """Returns whether XLA compiles the function that an op called here goes into."""
    return bool(control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph()))
