"""Where the Keras versions let gradients be reduced, and what else differs between them.

| Keras | where the reduction goes |
|---|---|
| 2, `optimizers.Optimizer` | `aggregate_gradients` |
| 2, `optimizers.legacy.Optimizer` | `_aggregate_gradients` |
| 3 | `apply`, which `apply_gradients` calls; LossScaleOptimizer.apply is replaced, see below |

A LossScaleOptimizer of Keras 2 calls its inner optimizer's method before it tests for finite
values; so one that is to be distributed gets a distributed inner optimizer.  One of Keras 3 is
distributed itself.

Private names of Keras, and of TensorFlow for Keras' sake, are used here and nowhere else.  Each
has a canary in tests/parallel/test_keras_override_points.py.
"""

from __future__ import annotations

import copy
import functools
import importlib
import inspect
import sys
import types
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat
from horovod.tensorflow._subclass import OptimizerExtension
from horovod.tensorflow.keras.reducing import StepReduction

__all__ = [
    "ReducingOptimizer",
    "build",
    "distributed",
    "inner_optimizer",
    "is_keras",
    "is_replaced_by_keras",
    "local_variables",
    "momentum_slots",
    "seed_states",
    "state",
]


def is_keras(optimizer: Any) -> bool:
    """Returns whether an object is an optimizer of Keras 2, Keras 3 or tf_keras."""
    return _generation(optimizer) is not None


def _generation(optimizer: Any) -> str | None:
    """Returns "2", "legacy" or "3"; None for what is no Keras optimizer."""
    kind = type(optimizer)
    modules = {base.__module__ for base in kind.__mro__}
    if not any(name.split(".")[0] in ("keras", "tf_keras") for name in modules):
        return None
    if not hasattr(kind, "apply_gradients"):
        return None  # a layer, say
    if hasattr(kind, "aggregate_gradients"):
        return "2"
    if hasattr(kind, "_aggregate_gradients"):
        return "legacy"
    return "3" if hasattr(kind, "apply") else None


def inner_optimizer(optimizer: Any) -> Any:
    """Returns the optimizer in a LossScaleOptimizer; None for other optimizers."""
    return getattr(optimizer, "inner_optimizer", None)


def _ran(result: Any) -> tf.Tensor:
    """Returns a true bool; in a graph, one that is there when the result's op has run."""
    after = [result] if isinstance(result, (tf.Operation, tf.Tensor)) else []
    with tf.control_dependencies(after):
        return tf.constant(True)


class ReducingOptimizer(OptimizerExtension):
    """A Keras optimizer that reduces gradients over the ranks before it applies them.

    The rest (slots, hyperparameters, clipping, configuration) is the optimizer's own.

    Attributes:
      _hvd_new_reduction: a function that makes the `_hvd_reduction` of a new optimizer of this
        class, as `from_config` does.
    """

    __slots__ = ()

    _hvd_reduction: StepReduction
    _hvd_new_reduction: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hvd_attach(self, type(self)._hvd_new_reduction())

    def _hvd_attach(self, original: Any, reduction: StepReduction) -> None:
        """Makes this object reduce."""
        object.__setattr__(self, "_hvd_original", original)
        object.__setattr__(self, "_hvd_reduction", reduction)

    def _hvd_plain(self, **state: Any) -> Any:
        """Returns an optimizer of Keras' own class, with this one's state but for what is given."""
        plain: Any = object.__new__(type(self).__bases__[1])
        object.__setattr__(plain, "__dict__", {**self.__dict__, **state})
        return plain

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Copies the optimizer as Keras does; the copy reduces, and begins a new step."""
        new_reduction = type(self)._hvd_new_reduction
        reduction = new_reduction()
        reduction.take_local(self._hvd_reduction, memo)
        return distributed(copy.deepcopy(self._hvd_plain(), memo), reduction, new_reduction)

    @property
    def model(self) -> Any:
        """No optimizer has a model, though one tutorial asks for it.

        Raises:
          AttributeError: always; it says what to do.
        """
        raise AttributeError(
            "DistributedOptimizer has no model: an optimizer does not know what it trains; build "
            "the model yourself and pass the optimizer to model.compile(optimizer=...)"
        )

    def _hvd_refuse_local(self, clips: Any, scales: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
        """Checks that gradients that stay on their rank decide nothing about the others.

        Args:
          clips: the optimizer that applies the gradients.
          scales: what may be a LossScaleOptimizer; in Keras 2 whatever calls this optimizer, since
            one around it says nothing of itself.
          pairs: (gradient, variable) pairs of a pass.

        Raises:
          ValueError: some would, by a norm of all or by an infinity that skips the step.
        """
        norm = getattr(clips, "global_clipnorm", None)
        scaled = _generation(scales) is not None and inner_optimizer(scales) is not None
        variables = [variable for _, variable in pairs]
        if norm:
            self._hvd_reduction.refuse_local(
                variables, f"global_clipnorm={norm} would clip all gradients by it; use clipnorm"
            )
        if scaled and getattr(scales, "dynamic", True):  # Keras 3 has no other
            cure = (
                "the optimizer's loss_scale_factor and compile(auto_scale_loss=False)"
                if _generation(self) == "3"
                else "LossScaleOptimizer(optimizer, dynamic=False, initial_scale=...)"
            )
            self._hvd_reduction.refuse_local(
                variables,
                "an infinity in it would skip the step, and change the loss scale, there alone; "
                f"use a fixed scale: {cure}",
            )

    def _hvd_pass(self, update: Any) -> tf.Tensor:
        """Runs an update if this pass is the last one of a step, else only counts the pass."""
        reduction = self._hvd_reduction
        last, reduction.last = reduction.last, None
        iterations = _compat.tensorflow_variable(self.iterations)  # type: ignore[attr-defined]

        def count() -> tf.Tensor:
            if reduction.step_counts_updates:
                return tf.constant(True)
            return _ran(iterations.assign_add(1, read_value=False))

        return tf.cond(last, lambda: _ran(update()), count)


class _Keras2(ReducingOptimizer):
    """For `keras.optimizers.Optimizer` of Keras 2.11 and later."""

    __slots__ = ()

    def aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[Any]:
        """Reduces (gradient, variable) pairs over the ranks."""
        pairs = list(grads_and_vars)
        self._hvd_refuse_local(self, sys._getframe(1).f_locals.get("self"), pairs)
        return self._hvd_reduction.pairs(pairs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Reduces and applies gradients, as the optimizer's own method does, and its arguments."""
        inherited = super().apply_gradients  # type: ignore[misc]
        pairs = list(grads_and_vars)
        skip = skip_gradients_aggregation or not kwargs.pop(
            "experimental_aggregate_gradients", True
        )
        if not skip:
            pairs = self.aggregate_gradients(pairs)
        if self._hvd_reduction.last is None:
            return inherited(pairs, name=name, skip_gradients_aggregation=True, **kwargs)
        build(self, [variable for _, variable in pairs])
        self._hvd_pass(
            lambda: inherited(pairs, name=name, skip_gradients_aggregation=True, **kwargs)
        )
        return self.iterations  # type: ignore[attr-defined]


class _Keras2Legacy(ReducingOptimizer):
    """For `keras.optimizers.legacy.Optimizer`, in eager code, functions and compat.v1 graphs."""

    __slots__ = ()

    def _aggregate_gradients(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[Any]:
        pairs = list(grads_and_vars)
        self._hvd_refuse_local(self, sys._getframe(1).f_locals.get("self"), pairs)
        return self._hvd_reduction.pairs(pairs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        name: str | None = None,
        experimental_aggregate_gradients: bool = True,
    ) -> Any:
        """Reduces and applies gradients, as the optimizer's own method does, and its arguments."""
        inherited = super().apply_gradients  # type: ignore[misc]
        pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
        if experimental_aggregate_gradients:  # before Keras leaves out variables without gradient
            pairs = self._transform_unaggregated_gradients(pairs)  # type: ignore[attr-defined]
            pairs = self._aggregate_gradients(pairs)
        if self._hvd_reduction.last is None:
            return inherited(pairs, name, experimental_aggregate_gradients=False)
        build(self, [variable for gradient, variable in pairs if gradient is not None])
        return self._hvd_pass(
            lambda: inherited(pairs, name, experimental_aggregate_gradients=False)
        )


class _Keras2LossScale(ReducingOptimizer):
    """For the LossScaleOptimizers of Keras 2, whose inner optimizer reduces."""

    __slots__ = ()

    def _hvd_attach(self, original: Any, reduction: StepReduction) -> None:
        """Gives this object, but not the original, a distributed inner optimizer."""
        inner = distributed(original.inner_optimizer, reduction, type(self)._hvd_new_reduction)
        object.__setattr__(self, "__dict__", {**original.__dict__, "_optimizer": inner})
        super()._hvd_attach(original, reduction)

    def _hvd_plain(self, **state: Any) -> Any:
        inner = self.inner_optimizer._hvd_plain()  # type: ignore[attr-defined]
        return super()._hvd_plain(_optimizer=inner, **state)


class _Keras3(ReducingOptimizer):
    """For the optimizers of Keras 3, its LossScaleOptimizer among them."""

    __slots__ = ()

    def apply(self, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        """Reduces and applies gradients, as the optimizer's own method does, and its arguments."""
        inherited = super().apply  # type: ignore[misc]
        if self._hvd_reduction.suspended:
            inherited(grads, trainable_variables)
        else:
            self._hvd_reduce_and_apply(self, inherited, grads, trainable_variables)

    def __copy__(self) -> Any:
        return copy.deepcopy(self)  # both are one to Keras, which saves and loads it

    def _hvd_reduce_and_apply(
        self, built: Any, apply: Any, grads: Sequence[Any], variables: Sequence[Any] | None
    ) -> None:
        """Reduces gradients and gives them to a function; `built` is the optimizer it is of."""
        reduction = self._hvd_reduction
        refuse_accumulation(self)
        if not len(grads):  # of which Keras makes nothing
            apply(grads, variables)
            return
        if variables is not None:
            variables = list(variables)
            if not built.built:  # before the branches of a conditional
                built.build(variables)
        elif not built.built:
            raise ValueError(
                f"{reduction.reduction.scope}: apply() has no variables, and the optimizer has not "
                "been built for any; pass trainable_variables, or call build() first"
            )
        known = built._trainable_variables if variables is None else variables
        if len(grads) != len(known):
            raise ValueError(
                f"{reduction.reduction.scope}: apply() has {len(grads)} gradients for {len(known)} "
                "variables; pass one for each, None where there is none"
            )
        pairs = list(zip(grads, known))
        self._hvd_refuse_local(inner_optimizer(built) or built, built, pairs)
        reduced = [gradient for gradient, _ in reduction.pairs(pairs)]
        if reduction.last is None:
            apply(reduced, variables)
        else:
            self._hvd_pass(lambda: apply(reduced, variables))


def refuse_accumulation(optimizer: Any) -> None:
    """Raises ValueError if an optimizer of Keras 3 adds up gradients itself."""
    steps = getattr(inner_optimizer(optimizer) or optimizer, "gradient_accumulation_steps", None)
    if steps:
        raise ValueError(
            f"DistributedOptimizer: the optimizer has gradient_accumulation_steps={steps}, and "
            "would have its gradients reduced in every pass; leave that out, and pass "
            f"backward_passes_per_step={steps}, average_aggregated_gradients=True to "
            "DistributedOptimizer"
        )


@functools.cache
def _reduce_before_loss_scaling(loss_scale_optimizer: type) -> None:
    """Makes a Keras 3 LossScaleOptimizer around a distributed optimizer reduce first.

    `compile` makes one by itself under mixed_float16.  Its `apply` tests this rank's gradients, and
    leaves the inner optimizer out on a rank that finds an infinity, for which the other ranks would
    wait; and there is nothing else to override.
    """
    original: Any = loss_scale_optimizer.__dict__.get("apply")
    expected = ["self", "grads", "trainable_variables"]
    if original is None or list(inspect.signature(original).parameters) != expected:
        warnings.warn(
            f"{loss_scale_optimizer.__module__}.LossScaleOptimizer has no apply({expected}): "
            "around a DistributedOptimizer it makes ranks wait for one that finds an infinity; "
            "pass the LossScaleOptimizer to hvd.DistributedOptimizer instead",
            RuntimeWarning,
            stacklevel=2,
        )
        return

    @functools.wraps(original)
    def apply(self: Any, grads: Sequence[Any], trainable_variables: Any = None) -> None:
        inner = self.inner_optimizer
        if not isinstance(inner, _Keras3):
            original(self, grads, trainable_variables)
            return

        def test_and_apply(reduced: Sequence[Any], variables: Any) -> None:
            with inner._hvd_reduction.suspend():
                original(self, reduced, variables)

        inner._hvd_reduce_and_apply(self, test_and_apply, grads, trainable_variables)

    loss_scale_optimizer.apply = apply  # type: ignore[attr-defined]


def _library(optimizer: Any) -> Any:
    """Returns the Keras module that an optimizer is of."""
    names = [base.__module__.split(".")[0] for base in type(optimizer).__mro__]
    return importlib.import_module("tf_keras" if "tf_keras" in names else "keras")


def _extension_for(optimizer: Any) -> type[ReducingOptimizer]:
    """Returns the methods to add to an optimizer.

    Raises:
      ValueError: gradients would be reduced in every pass; see `refuse_accumulation`.
    """
    generation = _generation(optimizer)
    if generation == "3":
        refuse_accumulation(optimizer)
        _reduce_before_loss_scaling(_library(optimizer).optimizers.LossScaleOptimizer)
        return _Keras3
    if inner_optimizer(optimizer) is not None:
        return _Keras2LossScale
    return _Keras2 if generation == "2" else _Keras2Legacy


def distributed(original: Any, reduction: StepReduction, new_reduction: Any) -> Any:
    """Returns an object with the state of an optimizer, which reduces.

    It is of a subclass of the optimizer's class that looks the same to Keras' saving: what is
    saved is the optimizer as it was, and loads where this package is not installed.

    Args:
      original: a Keras optimizer; the two share one state.
      reduction: of its gradients.
      new_reduction: makes the reduction of another optimizer of the same class.
    """
    base = type(original)
    library = _library(original)
    own = base.__module__.split(".")[0] != library.__name__  # a class of the program
    body = {
        # The names under which Keras 2 exports a class are the class's own attributes.
        **{name: value for name, value in vars(base).items() if "_api_names" in name},
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "_hvd_new_reduction": staticmethod(new_reduction),
    }
    kind = types.new_class(
        str(library.saving.get_registered_name(base)) if own else base.__name__,
        (_extension_for(original), base),
        exec_body=lambda namespace: namespace.update(body),
    )
    result: Any = object.__new__(kind)
    object.__setattr__(result, "__dict__", original.__dict__)
    result._hvd_attach(original, reduction)
    return result


def is_replaced_by_keras(optimizer: Any) -> bool:
    """Returns whether Keras trains with another optimizer instead of this one.

    With TensorFlow 2 behavior off, `compile` of Keras 2 makes a legacy optimizer of a new one.
    """
    return _generation(optimizer) == "2" and not tf.__internal__.tf2.enabled()


def build(optimizer: Any, variables: Sequence[Any]) -> None:
    """Makes an optimizer's variables, slots included, unless it has them, under their usual names.

    Args:
      optimizer: of Keras, or anything else, which is left as it is.
      variables: those that it will train.
    """
    generation = _generation(optimizer)
    if generation in ("2", "legacy"):
        # As in apply_gradients of Keras: checkpoints of graphs know variables by these names.
        named = inner_optimizer(optimizer) or optimizer
        with tf.name_scope(named.name if generation == "2" else named._name), tf.init_scope():
            if generation == "2":
                optimizer.build(variables)
            else:
                optimizer._create_all_weights(variables)
    elif generation is not None and not getattr(optimizer, "built", False):
        optimizer.build(variables)


def state(optimizer: Any) -> list[Any]:
    """Returns an optimizer's variables: slots, iterations, learning rate, loss scale.

    Args:
      optimizer: of Keras, or anything else, which has none.
    """
    generation = _generation(optimizer)
    if generation is None:
        return []
    if generation == "3":
        return list(optimizer.variables)
    found = optimizer.variables
    variables = list(found() if callable(found) and not isinstance(found, list) else found)
    rate = getattr(optimizer, "learning_rate", None)
    if isinstance(rate, tf.Variable) and all(rate is not variable for variable in variables):
        variables.append(rate)
    scale = getattr(optimizer, "_loss_scale", None)  # a float when it is fixed
    variables.extend(getattr(scale, "_weights", {}).values())
    return variables


def seed_states(model: Any) -> list[Any]:
    """Returns the states from which a model's layers draw random numbers.

    Args:
      model: of Keras 3; in Keras 2 they are no variables of a model.
    """
    return [
        generator.state
        for layer in model._flatten_layers()
        for generator in getattr(layer, "_seed_generators", ())
    ]


def local_variables(model: Any) -> list[Any]:
    """Returns the variables of a compiled model that are each rank's own.

    Those are the ones whose gradients stay on their rank, and all of `local_layers`.
    """
    optimizer = getattr(model, "optimizer", None)
    for distributed in (optimizer, inner_optimizer(optimizer)):
        if isinstance(distributed, ReducingOptimizer):
            reduction = distributed._hvd_reduction
            of_layers = [weight for layer in reduction.local_layers for weight in layer.weights]
            return [*of_layers, *reduction.local_of(model.trainable_variables)]
    return []


def momentum_slots(optimizer: Any) -> list[Any]:
    """Returns an optimizer's moving sums of updates, which are in units of its learning rate.

    Args:
      optimizer: of Keras; of those that come with it, SGD and RMSprop with momentum have any.
    """
    while inner_optimizer(optimizer) is not None:
        optimizer = inner_optimizer(optimizer)
    if not hasattr(optimizer, "momentum"):
        return []
    if _generation(optimizer) == "legacy":
        if "momentum" not in optimizer.get_slot_names():
            return []
        return [slots["momentum"] for slots in optimizer._slots.values() if "momentum" in slots]
    return list(
        getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or ()
    )
