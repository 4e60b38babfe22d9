"""What a distributed Keras optimizer does with the gradients of a backward pass."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.reduction import GradientReduction
from horovod.tensorflow.variables import label

__all__ = ["StepReduction"]


@dataclass
class StepReduction:
    """The reduction of one optimizer's gradients, pass by pass.

    Attributes:
      reduction: over the ranks.
      step_counts_updates: whether `optimizer.iterations` counts updates instead of passes.
      local_layers: Keras layers whose gradients stay on their rank.
      sums: of the backward passes of one step, which `reduce` reduces; None when each pass is a
        step.
      last: whether the pass that is being applied is the last one of its step, a bool of shape
        []; None outside `aggregate` and `apply_gradients`.
      suspended: whether gradients come reduced already.
    """

    reduction: GradientReduction
    step_counts_updates: bool
    local_layers: Sequence[Any]
    sums: LocalGradientAggregationHelper | None = None
    last: tf.Tensor | None = None
    suspended: bool = False

    @contextlib.contextmanager
    def suspend(self) -> Iterator[None]:
        """Takes gradients as reduced, inside of a `with`."""
        self.suspended = True
        try:
            yield
        finally:
            self.suspended = False

    def keep_local(self, variable: Any) -> None:
        """Leaves the gradient of a variable on its rank from now on."""
        self.reduction.keep_local(_compat.tensorflow_variable(variable))

    def take_local(self, other: StepReduction, copies: Mapping[int, Any]) -> None:
        """Leaves those gradients on their rank that another reduction leaves there.

        Args:
          other: whose variables and layers.
          copies: of layers, by the `id` of the layer that they stand for here.
        """
        self.reduction.local.update(other.reduction.local)
        self.local_layers = [copies.get(id(layer), layer) for layer in other.local_layers]

    def _keep_layers_local(self) -> None:
        for layer in self.local_layers:  # which may have been built meanwhile
            for variable in layer.trainable_weights:
                self.keep_local(variable)

    def local_of(self, variables: Iterable[Any]) -> list[Any]:
        """Returns those of some variables whose gradients stay on their rank."""
        self._keep_layers_local()
        return [variable for variable in variables if self.reduction.is_local(variable)]

    def refuse_local(self, variables: Iterable[Any], why: str) -> None:
        """Raises ValueError if the gradient of one of some variables stays on its rank.

        Args:
          variables: those of a pass.
          why: what is wrong with that, and what to do.
        """
        for variable in self.local_of(variables):
            raise ValueError(
                f"{self.reduction.scope}: the gradient of {label(variable)!r} stays on its rank "
                f"(register_local_var, local_layers), and {why}"
            )

    def pairs(self, grads_and_vars: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Takes the gradients of one pass.

        Args:
          grads_and_vars: (gradient, variable) pairs; the variables of TensorFlow or of Keras 3.

        Returns:
          Pairs of the reduced gradients and the same variables.  In a pass that is not the last
          one of its step the gradients are zeros, which `last` says are not to be applied.
        """
        pairs = list(grads_and_vars)
        gradients = [gradient for gradient, _ in pairs]
        variables = [variable for _, variable in pairs]
        if self.sums is None or not pairs:
            return list(zip(self.reduce(gradients, variables), variables))
        reduced = self.sums.compute_gradients(gradients, variables)
        self.last = self.sums.ends_step
        return list(zip(reduced, variables))

    def reduce(self, gradients: Sequence[Any], variables: Sequence[Any] | None = None) -> list[Any]:
        """Transforms gradients and reduces them over the ranks.

        Args:
          gradients: tensors, `tf.IndexedSlices` or None.
          variables: what they belong to.

        Returns:
          The reduced gradients, in order.

        Raises:
          ValueError: XLA compiles this code; or as from `GradientReduction`.
        """
        self._refuse_xla()
        gradients = self.reduction.transformed(gradients, variables)
        if variables is None:
            return self.reduction.exchange(gradients)
        self._keep_layers_local()
        sources = [_compat.tensorflow_variable(variable) for variable in variables]
        return self.reduction.exchange(gradients, sources)

    def _refuse_xla(self) -> None:
        if _compat.in_xla():
            raise ValueError(
                f"{self.reduction.scope}: XLA compiles this step, and collectives have no XLA "
                "kernel yet; pass jit_compile=False to model.compile() or tf.function()"
            )
