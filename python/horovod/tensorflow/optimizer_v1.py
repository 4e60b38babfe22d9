"""What `DistributedOptimizer` adds to a `tf.compat.v1.train` optimizer.

Where the ranks meet: in `compute_gradients`, so that what follows (clipping, the test of a loss
scale for finite values, the update) sees the same gradients on all ranks; with op=Adasum after the
update.
"""

from __future__ import annotations

import sys
from typing import Any

import tensorflow as tf

from horovod.common.reduce_ops import Adasum
from horovod.tensorflow import _compat
from horovod.tensorflow._subclass import OptimizerExtension, extended
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper, run_either
from horovod.tensorflow.passes import PassCounter, after, local_variable, require_known_shape
from horovod.tensorflow.reduction import GradientReduction
from horovod.tensorflow.variables import reference

__all__ = ["distributed_v1_optimizer"]


class _ReducingOptimizer(OptimizerExtension):
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

        Raises:
          ValueError: a loss scale cannot work with this; a variable in `groups` is not trained.
        """
        # A loss scale optimizer around this one says nothing of itself; it calls this method.
        caller = sys._getframe(1).f_locals.get("self")
        if _compat.scales_loss_dynamically(self):
            self._check_loss_scale(inside=False)
        elif _compat.scales_loss_dynamically(caller):
            self._check_loss_scale(inside=True)
        pairs = list(super().compute_gradients(*args, **kwargs))  # type: ignore[misc]
        variables = [variable for _, variable in pairs]
        gradients = self._hvd_exchange([gradient for gradient, _ in pairs], variables)
        return list(zip(gradients, variables))

    def _hvd_exchange(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        """Makes what `compute_gradients` returns of this rank's gradients."""
        return self._allreduce_grads(gradients, variables)

    def _check_loss_scale(self, inside: bool) -> None:
        """Raises ValueError if the ranks would not skip the same steps.

        Args:
          inside: whether the loss scale optimizer is around this one, rather than in it.
        """
        if self._hvd_reduction.local:
            raise ValueError(
                f"{self._hvd_reduction.scope}: variables given to register_local_var, whose "
                "gradients stay on their rank, under a dynamic loss scale: the ranks would skip "
                "different steps; use a fixed loss scale"
            )

    def __getattr__(self, name: str) -> Any:
        """Says of `model`, which one tutorial reads, what to do instead."""
        if name == "model":
            raise AttributeError(
                f"{type(self).__name__} has no model; keep the model in a variable of its own, and "
                "train it with optimizer.minimize(loss)"
            )
        inherited = getattr(super(), "__getattr__", None)
        if inherited is not None:
            return inherited(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class _StepwiseOptimizer(_ReducingOptimizer):
    """One that applies nothing of a step before all of it has been reduced."""

    __slots__ = ()

    def apply_gradients(self, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        """Applies the gradients when all of them are there.

        One that needs no input, as of a variable in a regularizer alone, is there before the input
        of the others may turn out to have ended, on this rank or another.

        Args:
          grads_and_vars: pairs (gradient, variable).
          *args: those of the optimizer's own `apply_gradients`.
          **kwargs: the same.

        Returns:
          The operation; in eager code None.
        """
        pairs = list(grads_and_vars)
        gradients = [gradient for gradient, _ in pairs if tf.is_tensor(gradient)]
        own = super().apply_gradients  # type: ignore[misc]
        if _compat.executing_eagerly() or not gradients:
            return own(pairs, *args, **kwargs)
        with tf.control_dependencies([tf.group(*gradients)]):
            return own(pairs, *args, **kwargs)


class _AggregatingOptimizer(_ReducingOptimizer):
    """One that reduces and applies the sum of several backward passes."""

    __slots__ = ("_hvd_aggregation", "_hvd_step_counts_updates")

    _hvd_aggregation: LocalGradientAggregationHelper
    _hvd_step_counts_updates: bool

    def _hvd_exchange(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        return self._hvd_aggregation.compute_gradients(gradients, variables)

    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Applies what `compute_gradients` returned, in the pass that ends a step.

        Args:
          grads_and_vars: pairs (gradient, variable).
          global_step: a variable that counts every pass, or with `step_counts_updates` every
            update; None for none.
          name: of the operation; default: the optimizer's.
          *args: those of the optimizer's own `apply_gradients`.
          **kwargs: the same.

        Returns:
          The operation; in eager code None.

        Raises:
          ValueError: `compute_gradients` was not called before for any of these variables; or for
            several lists with some of them, and the gradients are those of none or of several.
        """
        pairs = list(grads_and_vars)
        own = super().apply_gradients  # type: ignore[misc]

        def apply() -> Any:
            # Of a name of its own: the program's is that of the operation around it.
            return own(pairs, global_step, f"{self._hvd_reduction.scope}_Apply", *args, **kwargs)

        def count() -> Any:
            if global_step is None or self._hvd_step_counts_updates:
                return None
            return global_step.assign_add(1, read_value=False)

        gradients = [gradient for gradient, _ in pairs]
        variables = [variable for _, variable in pairs]
        return self._hvd_aggregation.apply_gradients(
            apply, variables, count, name or self.get_name(), gradients
        )

    def _check_loss_scale(self, inside: bool) -> None:
        super()._check_loss_scale(inside)
        if inside:
            raise ValueError(
                f"{self._hvd_reduction.scope}: backward_passes_per_step adds up gradients of "
                "several passes, and the loss scale around this optimizer may change between "
                "them; give the loss scale optimizer to hvd.DistributedOptimizer instead"
            )


class _AdasumOptimizer(_ReducingOptimizer):
    """One that takes steps of its own and combines what they changed.

    As in arXiv:2006.02924: each rank applies its own gradients, the differences that this made to
    the variables are combined by Adasum, and the variables become what they were plus the result.
    They are what they were during the exchange too, so that one that fails leaves no step of this
    rank alone in them.
    """

    __slots__ = ("_hvd_passes_per_step", "_hvd_step_counts_updates", "_hvd_windows")

    _hvd_passes_per_step: int
    _hvd_step_counts_updates: bool
    _hvd_windows: list[_Starts]

    def _hvd_exchange(self, gradients: list[Any], variables: list[Any]) -> list[Any]:
        reduction = self._hvd_reduction
        return [
            reduction.scaled_local(gradient)
            if gradient is not None and reduction.is_local(variable)
            else gradient
            for gradient, variable in zip(reduction.transformed(gradients, variables), variables)
        ]

    @_compat.without_autograph
    def apply_gradients(
        self,
        grads_and_vars: Any,
        global_step: Any = None,
        name: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Takes a step of this rank's own, and combines the steps when they are due.

        Args:
          grads_and_vars: pairs (gradient, variable) of this rank.
          global_step: a variable that counts every pass, or with `step_counts_updates` every
            combination; None for none. A pass whose combination fails is not counted.
          name: of the operation; default: the optimizer's.
          *args: those of the optimizer's own `apply_gradients`.
          **kwargs: the same.

        Returns:
          The operation; in eager code None.
        """
        pairs = list(grads_and_vars)
        variables = {
            reference(variable): variable
            for gradient, variable in pairs
            if gradient is not None and not self._hvd_reduction.is_local(variable)
        }
        gradients = [gradient for gradient, _ in pairs if tf.is_tensor(gradient)]
        with tf.name_scope(f"{self._hvd_reduction.scope}_Start"):
            starts = self._hvd_starts(list(variables.values()))
            # All gradients first: one that needs no input is not to be applied where the input of
            # the others turns out to have ended.
            with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True)):
                begun = starts.begin()
        # The step of this rank alone is nothing that a program should find and run: neither under
        # the name that it gave, nor among the train ops.
        train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        before = list(train_ops)
        with tf.control_dependencies(begun):
            applied = super().apply_gradients(  # type: ignore[misc]
                pairs, None, f"{self._hvd_reduction.scope}_Own", *args, **kwargs
            )
        train_ops[:] = before
        due = starts.counter.add([] if applied is None else [applied])

        def count() -> Any:
            return None if global_step is None else global_step.assign_add(1, read_value=False)

        def combine() -> Any:
            with tf.name_scope(self._hvd_reduction.scope):
                changed = starts.assign(self._hvd_reduction.exchange)
                with tf.control_dependencies(changed):
                    counted = count()
                if _compat.executing_eagerly():
                    return None
                return tf.group(*changed, *([] if counted is None else [counted]))

        otherwise = (lambda: None) if self._hvd_step_counts_updates else count
        return run_either(due, combine, otherwise, name or self.get_name())

    def _hvd_starts(self, variables: list[Any]) -> _Starts:
        """Returns what holds the start of a step; in a compat.v1 graph a new one at each call."""
        if _compat.outer_graph() is None:
            for starts in self._hvd_windows:
                if starts.counter.graph is None and starts.holds(variables):
                    return starts
        starts = _Starts(variables, self._hvd_passes_per_step)
        self._hvd_windows.append(starts)
        return starts

    def _check_loss_scale(self, inside: bool) -> None:
        raise ValueError(
            f"{self._hvd_reduction.scope}: op=Adasum under a dynamic loss scale: each rank would "
            "test its own gradients and skip steps alone; use a fixed loss scale, or op=hvd.Average"
        )


class _Starts:
    """What variables were when the step began, in local variables.

    Attributes:
      counter: of the passes.
    """

    def __init__(self, variables: list[Any], passes_per_step: int) -> None:
        self.counter = PassCounter(passes_per_step)
        self._variables = variables
        with tf.init_scope():
            for variable in variables:
                require_known_shape("op=Adasum", variable)
            self._starts = [
                local_variable(tf.zeros(v.shape, v.dtype.base_dtype), "start") for v in variables
            ]

    def holds(self, variables: list[Any]) -> bool:
        """Returns whether it was made for these variables."""
        return [reference(v) for v in self._variables] == [reference(v) for v in variables]

    def _save(self) -> list[Any]:
        return [
            start.assign(_value(variable), read_value=False)
            for start, variable in zip(self._starts, self._variables)
        ]

    def begin(self) -> list[Any]:
        """Returns what to run before a pass."""
        with tf.control_dependencies([self.counter.initialised(lambda zero: self._save())]):
            first = tf.equal(self.counter.count.read_value(), 0)
        return _compat.cond(
            first,
            lambda: after(self._save(), [tf.constant(True)]),
            lambda: [tf.constant(True)],
            "begin",
        )

    def assign(self, combine: Any) -> list[Any]:
        """Returns the ops that end a step.

        The variables go back to their starts, and the counter to 0, before `combine`: if it fails,
        the step is as if it had not been taken, and the next pass begins a new one.

        Args:
          combine: makes one list of differences of all ranks'; it gets this rank's and the
            variables.
        """
        starts = [start.read_value() for start in self._starts]
        mine = [_value(variable) - start for variable, start in zip(self._variables, starts)]
        with tf.control_dependencies(mine):
            undone = [
                variable.assign(start, read_value=False)
                for variable, start in zip(self._variables, starts)
            ]
            undone += self.counter.restart(lambda zero: [])
        combined = combine(after(undone, mine), self._variables)
        changed = [
            variable.assign(start + difference, read_value=False)
            for variable, start, difference in zip(self._variables, starts, combined)
        ]
        return [*undone, *changed]


def _value(variable: Any) -> tf.Tensor:
    """Returns a variable's value at the time when the op runs, which later updates leave alone."""
    if hasattr(variable, "handle"):
        return variable.read_value()
    return tf.raw_ops.DeepCopy(x=_compat.handle(variable))


def distributed_v1_optimizer(
    optimizer: Any,
    reduction: GradientReduction,
    *,
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    step_counts_updates: bool,
) -> Any:
    """Makes a `tf.compat.v1.train` optimizer a distributed one; see `DistributedOptimizer`.

    Args:
      optimizer: the one to wrap.
      reduction: how its gradients are reduced.
      backward_passes_per_step: how many passes make a step.
      average_aggregated_gradients: whether their sum is divided by their number.
      step_counts_updates: whether the global step counts updates rather than passes.

    Returns:
      An optimizer of a subclass of the given one's class, with its state.

    Raises:
      ValueError: it is distributed already; or it has a loss scale that does not work with this.
    """
    if reduction.op == Adasum:
        wrapped = extended(
            optimizer,
            _AdasumOptimizer,
            reduction,
            _hvd_passes_per_step=backward_passes_per_step,
            _hvd_step_counts_updates=step_counts_updates,
            _hvd_windows=[],
        )
        if _compat.scales_loss_dynamically(optimizer):
            wrapped._check_loss_scale(inside=False)
        return wrapped
    if backward_passes_per_step == 1:
        return extended(optimizer, _StepwiseOptimizer, reduction)
    aggregation = LocalGradientAggregationHelper(
        backward_passes_per_step,
        reduction.reduce,
        reduction.sparse_as_dense,
        average_aggregated_gradients,
        name=f"{reduction.scope}_Sum",
    )
    return extended(
        optimizer,
        _AggregatingOptimizer,
        reduction,
        _hvd_aggregation=aggregation,
        _hvd_step_counts_updates=step_counts_updates,
    )
