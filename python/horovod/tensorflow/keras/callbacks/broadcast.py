"""Gives all ranks the model of one before training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from horovod.tensorflow import _compat
from horovod.tensorflow._subclass import Extension
from horovod.tensorflow.arguments import require_rank
from horovod.tensorflow.collectives import on_device
from horovod.tensorflow.functions import broadcast_
from horovod.tensorflow.keras import _override_points
from horovod.tensorflow.keras.values import session
from horovod.tensorflow.other_keras import RefusesTfKeras
from horovod.tensorflow.variables import reference

__all__ = ["BroadcastGlobalVariablesCallback", "give_all"]


class BroadcastGlobalVariablesCallback(RefusesTfKeras, tf.keras.callbacks.Callback):
    """Gives all ranks the root's variables before the first step of a model's training.

    That is after other callbacks have begun, so when the root alone has restored a checkpoint, its
    weights, optimizer slots, iterations, learning rate and loss scale go to all.  A model that
    would be built by its first step is built before it.  The states of random seeds stay each
    rank's own.

    Where XLA would compile the step, as Keras 3 lets it do on a machine with a GPU, this turns
    that off and says so, since collectives have no XLA kernel.

    Args:
      root_rank: whose values; in [0, size).
      device: where to place the broadcasts; default: as TensorFlow decides.
      local_variables: variables that each rank keeps.

    Raises:
      ValueError: `root_rank` is no rank.
    """

    _supports_tf_logs = True  # Keras 2 need not fetch the metrics of each batch for this

    def __init__(
        self, root_rank: int, device: str = "", local_variables: Iterable[Any] | None = None
    ) -> None:
        super().__init__()
        require_rank(type(self).__name__, "root_rank", root_rank)
        self.root_rank = root_rank
        self.device = device
        self._local = {reference(variable) for variable in local_variables or ()}
        self._done_for: Any = None
        self._train_function: Any = None

    def register_local_var(self, var: Any) -> None:
        """Leaves a variable to each rank.

        Args:
          var: of the model or its optimizer.
        """
        self._local.add(reference(var))

    def set_model(self, model: Any) -> None:
        """Takes the model that is about to be trained.

        Raises:
          ValueError: its optimizer is a distributed one of tf.compat.v1, and the code is eager.
        """
        super().set_model(model)
        optimizer = getattr(model, "optimizer", None)
        if _compat.executing_eagerly() and isinstance(
            getattr(optimizer, "optimizer", None), Extension
        ):
            raise ValueError(
                f"model {model.name!r}: in eager code, Keras calls only apply_gradients() of a "
                "tf.compat.v1 optimizer, which does not reduce; compile the model with a "
                "DistributedOptimizer of a tf.keras optimizer"
            )
        inner = _override_points.inner_optimizer(optimizer)
        distributed = isinstance(optimizer, Extension) or isinstance(inner, Extension)
        if distributed and getattr(model, "jit_compile", False):
            warnings.warn(
                f"model {model.name!r}: jit_compile is turned off, since collectives have no XLA "
                "kernel yet; pass jit_compile=False to compile() and this is not said",
                RuntimeWarning,
                stacklevel=2,
            )
            model.jit_compile = False
            model.train_function = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Broadcasts before the first batch, or has the model built for it."""
        if self._done_for is self.model:
            return
        if self.model.built:
            self._broadcast()
            return
        self._train_function = self.model.train_function
        self.model.train_function = self._build_and_train

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Broadcasts now if the model could not be built before its first step."""
        if self._done_for is not self.model:
            self._broadcast()

    def _build_and_train(self, iterator: Any) -> Any:
        """Stands for the first call of `model.train_function`, the first to see any data."""
        model, self.model.train_function = self.model, self._train_function
        inputs = tf.keras.utils.unpack_x_y_sample_weight(iterator.element_spec)[0]
        try:
            tf.function(lambda x: model(x, training=False)).get_concrete_function(inputs)
        except Exception as error:  # whatever a model of the program's own raises
            warnings.warn(
                f"model {model.name!r} cannot be built before its first step ({error}), so the "
                "ranks make that step with weights of their own, and get rank "
                f"{self.root_rank}'s after it; build the model before fit()",
                RuntimeWarning,
                stacklevel=2,
            )
        else:
            self._broadcast()
        return model.train_function(iterator)

    def _variables(self) -> list[Any]:
        optimizer = getattr(self.model, "optimizer", None)
        _override_points.build(optimizer, self.model.trainable_variables)
        variables = [*self.model.variables, *_override_points.state(optimizer)]
        unique = {reference(v): _compat.tensorflow_variable(v) for v in variables}
        # Else all ranks would drop the same units.
        seeds = {reference(state) for state in _override_points.seed_states(self.model)}
        return [v for r, v in unique.items() if r not in self._local and r not in seeds]

    def _broadcast(self) -> None:
        self._done_for = self.model
        give_all(self._variables, self.root_rank, self.device)


def give_all(variables: Callable[[], list[Any]], root_rank: int, device: str = "") -> None:
    """Gives all ranks the root's values of variables, in eager code or in Keras' session.

    Args:
      variables: returns them, and may make some; called in Keras' graph, where there is one.
      root_rank: whose values; in [0, size).
      device: where to place the broadcasts; default: as TensorFlow decides.
    """
    if _compat.executing_eagerly():
        with on_device(device):
            broadcast_(variables(), root_rank)
        return
    keras_session = session()
    with keras_session.graph.as_default(), on_device(device):
        operation = broadcast_(variables(), root_rank)
    session().run(operation)  # asked for again, it initializes variables made meanwhile
