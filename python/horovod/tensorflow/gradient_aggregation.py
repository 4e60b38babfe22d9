"""Adds up the gradients of several backward passes on their rank, for one reduction of the sum.

Sums and counts are in local variables; see `passes`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat
from horovod.tensorflow.arguments import require_whole_number
from horovod.tensorflow.collectives import on_device
from horovod.tensorflow.passes import PassCounter, after, local_variable, require_known_shape
from horovod.tensorflow.variables import label, reference

__all__ = [
    "LocalGradientAggregationHelper",
    "run_either",
]

# What a gradient carries that compute_gradients has returned: the window that it is of.
_WINDOW = "_hvd_window"


class _DenseSum:
    """The sum of a variable's dense gradients."""

    parts = 1

    def __init__(self, variable: Any, gradient: tf.Tensor, name: str) -> None:
        with tf.init_scope():
            self._sum = local_variable(tf.zeros(variable.shape, gradient.dtype), name)

    def add(self, gradient: Any) -> list[Any]:
        """Returns the ops that add a gradient; IndexedSlices become dense."""
        return [self._sum.assign_add(tf.convert_to_tensor(gradient), read_value=False)]

    def read(self) -> list[tf.Tensor]:
        return [self._sum.read_value()]

    def nothing(self) -> list[tf.Tensor]:
        return [tf.zeros(self._sum.shape, self._sum.dtype)]

    def clear(self, zero: tf.Tensor) -> list[Any]:
        return [self._sum.assign(self.nothing()[0], read_value=False)]

    def gradient(self, parts: Sequence[tf.Tensor]) -> tf.Tensor:
        """Makes a gradient of what `read` or `nothing` returned, or what became of it."""
        (value,) = parts
        value.set_shape(self._sum.shape)
        return value


class _Rows:
    """The slices of a variable's gradients, one after another."""

    parts = 2

    def __init__(self, variable: Any, gradient: tf.IndexedSlices, name: str) -> None:
        self._shape = variable.shape.as_list()
        tail = self._shape[1:]
        values, indices = gradient.values, gradient.indices
        with tf.init_scope():
            self._values = local_variable(
                tf.zeros([0, *tail], values.dtype), f"{name}_values", [None, *tail]
            )
            self._indices = local_variable(tf.zeros([0], indices.dtype), f"{name}_indices", [None])

    def add(self, gradient: Any) -> list[Any]:
        """Returns the ops that append a gradient's slices.

        Raises:
          ValueError: the gradient is dense.
        """
        if not isinstance(gradient, tf.IndexedSlices):
            raise ValueError(
                f"backward_passes_per_step: the gradient {gradient!r} is dense, but that of an "
                "earlier pass for the same variable was tf.IndexedSlices; pass sparse_as_dense=True"
            )
        values = tf.concat([self._values.read_value(), gradient.values], 0)
        indices = tf.concat([self._indices.read_value(), gradient.indices], 0)
        return [
            self._values.assign(values, read_value=False),
            self._indices.assign(indices, read_value=False),
        ]

    def read(self) -> list[tf.Tensor]:
        return [self._values.read_value(), self._indices.read_value()]

    def nothing(self) -> list[tf.Tensor]:
        return [
            tf.zeros([0, *self._shape[1:]], self._values.dtype),
            tf.zeros([0], self._indices.dtype),
        ]

    def clear(self, zero: tf.Tensor) -> list[Any]:
        # A graph optimizer takes the rows of a value that is assigned, where it knows them, for
        # those that the variable always has, and folds the size of what was read before.
        shape = tf.concat([tf.reshape(zero, [1]), tf.constant(self._shape[1:], tf.int64)], 0)
        return [
            self._values.assign(tf.zeros(shape, self._values.dtype), read_value=False),
            self._indices.assign(tf.zeros(shape[:1], self._indices.dtype), read_value=False),
        ]

    def gradient(self, parts: Sequence[tf.Tensor]) -> tf.IndexedSlices:
        values, indices = parts
        values.set_shape([None, *self._shape[1:]])
        indices.set_shape([None])
        return tf.IndexedSlices(values, indices, tf.constant(self._shape, indices.dtype))


class _Window:
    """What a list of variables has gathered since its last step.

    Attributes:
      variables: their references.
      counter: of the passes.
      due: whether the pass that runs, or was added last, ends a step.
      waits: whether nothing was applied since it took the gradients of a pass.
    """

    def __init__(self, references: list[Any], passes_per_step: int) -> None:
        self.variables = references
        self.counter = PassCounter(passes_per_step)
        self.due: Any = None
        self.waits = False
        self._sums: dict[int, _DenseSum | _Rows] = {}

    def sums(
        self, gradients: Sequence[Any], variables: Sequence[Any]
    ) -> dict[int, _DenseSum | _Rows]:
        """Returns the sums by the place of their variable, for those that ever had a gradient."""
        for place, (gradient, variable) in enumerate(zip(gradients, variables)):
            if gradient is None or place in self._sums:
                continue
            variable = _compat.tensorflow_variable(variable)
            require_known_shape("backward_passes_per_step", variable)
            name = f"sum_{variable.name.split(':')[0]}"
            kind = _Rows if isinstance(gradient, tf.IndexedSlices) else _DenseSum
            with on_device(variable.device):
                self._sums[place] = kind(variable, gradient, name)
        return self._sums


class LocalGradientAggregationHelper:
    """Adds up gradients over some passes; each list of variables has sums and a count of its own.

    In a compat.v1 graph each call of `compute_gradients` has its own, since each becomes an op that
    a session may run by itself.

    Example:
      >>> w = tf.Variable(1.0)
      >>> reduce = lambda sums, variables: [hvd.allreduce(s, op=hvd.Sum, name="g") for s in sums]
      >>> helper = hvd.LocalGradientAggregationHelper(2, reduce)
      >>> for _ in range(2):
      ...     sums = helper.compute_gradients([tf.constant(3.0)], [w])
      >>> [float(s) for s in sums]  # 2 ranks: 12.0
      [6.0]
    """

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Any], list[Any]], list[Any]],
        sparse_as_dense: bool = False,
        average_aggregated_gradients: bool = False,
        *,
        name: str = "LocalGradientAggregation",
    ) -> None:
        """Makes a helper.

        Args:
          backward_passes_per_step: how many passes make a step; 1 or more.
          allreduce_func: reduces gradients over the ranks; it gets the sums, None for a variable
            that never had a gradient, and the variables, at the end of a step alone.
          sparse_as_dense: whether to make dense tensors of `tf.IndexedSlices` first; else their
            rows are gathered over the passes.
          average_aggregated_gradients: whether the sums are divided by the number of passes.
          name: the name scope of the ops.

        Raises:
          ValueError: `backward_passes_per_step` is no whole number above 0.
        """
        require_whole_number(name, "backward_passes_per_step", backward_passes_per_step)
        self._passes_per_step = backward_passes_per_step
        self._allreduce = allreduce_func
        self._sparse_as_dense = sparse_as_dense
        self._average = average_aggregated_gradients
        self._name = name
        self._windows: list[_Window] = []  # the last one used is the last

    @_compat.without_autograph
    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Adds the gradients of a pass to those of the passes before it.

        Args:
          grads: tensors, `tf.IndexedSlices` or None, of the kind and shape that the variable's had
            in the passes before.
          vars: the variables, one for each.

        Returns:
          In the pass that ends a step, the reduced gradients.  In others, zeros of their shapes;
          for `tf.IndexedSlices` no rows.  None for a variable that never had a gradient.

        Raises:
          ValueError: a variable's shape is not fully known; a dense gradient where there were
            `tf.IndexedSlices`; or the reduction makes another kind of gradient.
        """
        grads, vars = list(grads), list(vars)
        if self._sparse_as_dense:
            grads = [
                tf.convert_to_tensor(g) if isinstance(g, tf.IndexedSlices) else g for g in grads
            ]
        with tf.name_scope(self._name):
            window = self._window(vars)
            sums = window.sums(grads, vars)
            if not sums:
                return grads
            window.waits = True
            places = sorted(sums)

            def clear(zero: tf.Tensor) -> list[Any]:
                return [op for place in places for op in sums[place].clear(zero)]

            def reduced() -> list[tf.Tensor]:
                parts = [sums[place].read() for place in places]
                totals: list[Any] = [None] * len(vars)
                for place, read in zip(places, parts):
                    totals[place] = sums[place].gradient(self._divided(read))
                results = self._allreduce(totals, vars)
                for total, result, variable in zip(totals, results, vars):
                    _require_same_kind(self._name, variable, total, result)
                with tf.control_dependencies(tf.nest.flatten(parts)):
                    cleared = window.counter.restart(clear)
                return after(cleared, [part for place in places for part in _parts(results[place])])

            with tf.control_dependencies([window.counter.initialised(clear)]):
                added = [
                    op
                    for place in places
                    if grads[place] is not None
                    for op in sums[place].add(grads[place])
                ]
            window.due = window.counter.add(added)
            flat = _compat.cond(
                window.due,
                reduced,
                lambda: [part for place in places for part in sums[place].nothing()],
                "reduced",
            )
        results: list[Any] = [None] * len(grads)
        for place in places:
            parts = sums[place].parts
            results[place] = sums[place].gradient(flat[:parts])
            with contextlib.suppress(AttributeError):
                setattr(results[place], _WINDOW, window)
            flat = flat[parts:]
        return results

    @property
    def ends_step(self) -> tf.Tensor | None:
        """Whether the pass of the last `compute_gradients` ends a step, a bool of shape [].

        None where no variable ever had a gradient, so that nothing was counted.
        """
        return self._windows[-1].due

    @_compat.without_autograph
    def apply_gradients(
        self,
        apply: Callable[[], Any],
        vars: Sequence[Any],
        otherwise: Callable[[], Any],
        name: str | None = None,
        grads: Sequence[Any] = (),
    ) -> Any:
        """Applies the gradients of a `compute_gradients` if its pass ended a step.

        Args:
          apply: applies them; returns the operation, or None.
          vars: the variables they belong to.
          otherwise: what runs in the other passes; returns the operation, or None.
          name: of the operation.
          grads: what is applied.  Where `compute_gradients` returned one of these, its call is the
            one that counts; else the last one for any of the variables.

        Returns:
          In a graph, the operation; in eager code, what `apply` or `otherwise` returned.

        Raises:
          ValueError: `compute_gradients` was not called for any of the variables; or for several
            lists with some of them, and it cannot be told which one this is.
        """
        window = self._applied(grads, vars)
        window.waits = False
        due = window.due
        if window.counter.graph is None:  # a function may compute and another one apply
            due = tf.equal(window.counter.count.read_value(), 0)
        return run_either(due, apply, otherwise, name)

    def _window(self, variables: Sequence[Any]) -> _Window:
        """Returns what holds the sums of some variables, and makes it the last one used."""
        graph = _compat.outer_graph()
        references = [reference(variable) for variable in variables]
        for window in self._windows if graph is None else ():
            if window.counter.graph is None and window.variables == references:
                self._windows.remove(window)
                break
        else:
            window = _Window(references, self._passes_per_step)
        self._windows.append(window)
        return window

    def _applied(self, gradients: Sequence[Any], variables: Sequence[Any]) -> _Window:
        """Returns the window whose gradients are applied."""
        graph = _compat.outer_graph()
        wanted = {reference(variable) for variable in variables}
        windows = [
            window
            for window in self._windows
            if window.counter.graph is graph and not wanted.isdisjoint(window.variables)
        ]
        marks = [getattr(gradient, _WINDOW, None) for gradient in gradients]
        marked = [window for window in windows if any(mark is window for mark in marks)]
        # Clipped, say, the gradients carry no mark.
        possible = marked or [window for window in windows if window.waits] or windows[-1:]
        if len(possible) == 1:
            return possible[0]
        who = f"{self._name}: apply_gradients for {[variable.name for variable in variables]}"
        if possible:
            raise ValueError(
                f"{who}: {len(possible)} calls of compute_gradients had some of these variables, "
                "and the gradients do not tell which of them is applied; apply the gradients of "
                "one list of variables before you compute those of the next"
            )
        raise ValueError(
            f"{who}, but with backward_passes_per_step={self._passes_per_step} their gradients are "
            "added up by compute_gradients, which was not called for them; call minimize(loss), "
            "or compute_gradients(loss) before"
        )

    def _divided(self, parts: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Divides the values of a sum, the first of its parts, by the number of passes."""
        if not self._average:
            return list(parts)
        return [parts[0] / tf.cast(self._passes_per_step, parts[0].dtype), *parts[1:]]


def _kind(gradient: Any) -> str:
    if gradient is None:
        return "None"
    what = "tf.IndexedSlices" if isinstance(gradient, tf.IndexedSlices) else "dense"
    return f"{what} of {tf.dtypes.as_dtype(gradient.dtype).name}"


def _require_same_kind(who: str, variable: Any, total: Any, result: Any) -> None:
    """Raises ValueError if a reduced sum could not stand for what other passes return."""
    if _kind(total) != _kind(result):
        raise ValueError(
            f"{who}: the gradient of {label(variable)!r} was {_kind(total)} and became "
            f"{_kind(result)}; with backward_passes_per_step a reduction and transform_gradients "
            "must leave it of its kind"
        )


def _parts(gradient: Any) -> list[tf.Tensor]:
    if isinstance(gradient, tf.IndexedSlices):
        return [gradient.values, gradient.indices]
    return [gradient]


def run_either(
    predicate: tf.Tensor, first: Callable[[], Any], second: Callable[[], Any], name: str | None
) -> Any:
    """Runs one of two functions that make operations, with the names they have without a choice.

    Args:
      predicate: whether to run the first.
      first: returns an operation, tensor or None.
      second: the same.
      name: of the operation.

    Returns:
      In a graph, an operation; in eager code, what the function returned.
    """
    if _compat.executing_eagerly():
        return first() if predicate else second()
    graph = tf.compat.v1.get_default_graph()
    train_ops = graph.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
    before = list(train_ops)
    # Slots of an optimizer get their names, those in checkpoints, from the scope.
    scope = graph.get_name_scope()

    def branch(make: Callable[[], Any]) -> Callable[[], list[tf.Tensor]]:
        def run() -> list[tf.Tensor]:
            with tf.compat.v1.name_scope(f"{scope}/" if scope else None):
                made = make()
            return after([] if made is None else [made], [tf.constant(True)])

        return run

    done = _compat.cond(predicate, branch(first), branch(second), "update")
    chosen = tf.group(*done, name=name)
    # An operation inside a branch cannot be run by itself.
    train_ops[:] = [*before, chosen]
    return chosen
