"""Learning rates that follow the epoch."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from horovod.common import basics
from horovod.tensorflow.arguments import require_whole_number
from horovod.tensorflow.keras import _override_points
from horovod.tensorflow.keras.values import session
from horovod.tensorflow.other_keras import RefusesTfKeras

__all__ = ["LearningRateScheduleCallback", "LearningRateWarmupCallback"]


def _evaluate(variable: Any) -> Any:
    """Returns the value of a variable, or a number as it is."""
    if tf.executing_eagerly():
        return tf.convert_to_tensor(variable).numpy()
    is_symbolic = isinstance(variable, (tf.Variable, tf.Tensor))
    return session().run(variable) if is_symbolic else variable


def _scale(variables: list[Any], factor: float) -> None:
    """Multiplies variables in place."""
    for variable in variables:
        if tf.executing_eagerly():
            variable.assign(variable * tf.cast(factor, variable.dtype))
        else:
            tf.compat.v1.keras.backend.set_value(variable, _evaluate(variable) * factor)


def _finite(who: str, what: str, value: Any, advice: str) -> float:
    """Returns a value as a number.

    Args:
      who: begins the error's text.
      what: names the value there.
      value: a number, or an array or eager tensor of one.
      advice: what to do.

    Raises:
      ValueError: it is none, or not finite.
    """
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{who}: {what}{value!r}; {advice}")
    return number


def _require_epoch(
    who: str, name: str, value: Any, expected: str, least: float = -math.inf
) -> None:
    """Raises ValueError unless an argument is a finite number of epochs.

    Args:
      who: begins the error's text.
      name: of the argument.
      value: the argument.
      expected: what it must be.
      least: what it is at least.
    """
    if not isinstance(value, numbers.Real) or not math.isfinite(value) or value < least:
        raise ValueError(f"{who}: {name}={value!r}; it must be {expected}")


def _steps_of(params: dict[str, Any]) -> int | None:
    """Returns how many batches `fit` says that an epoch has; in graphs, it says samples."""
    if params.get("samples") and params.get("batch_size"):
        return -(-int(params["samples"]) // int(params["batch_size"]))
    return params.get("steps")


class LearningRateScheduleCallback(RefusesTfKeras, tf.keras.callbacks.Callback):
    """Sets the learning rate to `initial_lr * multiplier(epoch)` in a range of epochs.

    Args:
      initial_lr: the learning rate that is multiplied.
      multiplier: a function of the epoch, or a number.
      start_epoch: the first epoch in which this sets the learning rate.
      end_epoch: the first one in which it no longer does; None: to the end.
      staircase: whether it is set once per epoch; else before each batch, and `multiplier` is
        given a fraction, epoch + batch / steps_per_epoch.
      momentum_correction: whether the velocity of an optimizer with momentum, which is in units of
        the learning rate, changes with it (Goyal et al., arXiv:1706.02677, section 2.1).
      steps_per_epoch: batches per epoch on this rank, which is needed without staircase; default:
        what `fit` says.
    """

    initial_lr: float
    multiplier: Callable[[float], float]
    start_epoch: int
    end_epoch: int | None
    staircase: bool
    momentum_correction: bool
    steps_per_epoch: int | None
    current_epoch: int

    def __init__(
        self,
        initial_lr: float,
        multiplier: Callable[[float], float] | float,
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        who = type(self).__name__
        number = "it must be a number, the learning rate that the multiplier is applied to"
        initial_lr = _finite(who, "initial_lr=", initial_lr, number)
        if not callable(multiplier):
            function = "pass a number, or a function of the epoch that returns one"
            multiplier = _finite(who, "multiplier=", multiplier, function)
        _require_epoch(who, "start_epoch", start_epoch, "a finite number")
        if end_epoch is not None:
            _require_epoch(who, "end_epoch", end_epoch, "a finite number, or None for no end")
            if end_epoch < start_epoch:
                raise ValueError(
                    f"{who}: end_epoch={end_epoch} is before start_epoch={start_epoch}, so that "
                    "this would never set the learning rate; exchange them, or leave it out"
                )
        if steps_per_epoch is not None:
            require_whole_number(who, "steps_per_epoch", steps_per_epoch)
        self.initial_lr = initial_lr
        self.multiplier = multiplier if callable(multiplier) else lambda _: multiplier
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.staircase = staircase or not callable(multiplier)
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0

    def on_train_begin(self, logs: Any = None) -> None:
        """Learns how many batches an epoch has.

        Raises:
          ValueError: neither the program nor `fit` has said; or the optimizer has a schedule of
            its own.
        """
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = _steps_of(self.params)
            if not self.steps_per_epoch or self.steps_per_epoch < 0:
                raise ValueError(
                    f"{type(self).__name__}: fit() does not know how many batches an epoch has, "
                    "which a learning rate per batch needs; pass steps_per_epoch to the callback "
                    "or to fit()"
                )
        schedules = tf.keras.optimizers.schedules.LearningRateSchedule
        optimizer = _override_points.inner_optimizer(self.model.optimizer) or self.model.optimizer
        own = getattr(optimizer, "_learning_rate", None)
        if own is None:  # as in legacy ones
            own = getattr(optimizer, "learning_rate", None)
        if isinstance(own, schedules):
            raise ValueError(
                f"{type(self).__name__}: the optimizer's learning rate is a "
                f"{type(own).__name__}, which sets it in each step; use that or the callback, and "
                "give the optimizer a number"
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch."""
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Sets the learning rate of an epoch or a batch."""
        if self.current_epoch < self.start_epoch or (
            self.end_epoch is not None and self.current_epoch >= self.end_epoch
        ):
            return
        if not self.staircase:
            self._set(self.current_epoch + batch / self.steps_per_epoch)  # type: ignore[operator]
        elif batch == 0:
            self._set(self.current_epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the learning rate, `lr`, to the metrics of the epoch."""
        if logs is not None:
            logs["lr"] = float(_evaluate(self.model.optimizer.learning_rate))

    def _set(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        before = float(_evaluate(optimizer.learning_rate))
        factor = _finite(
            type(self).__name__,
            f"multiplier({epoch:g}) is ",
            self.multiplier(epoch),
            "it must return a number",
        )
        optimizer.learning_rate = self.initial_lr * factor
        if not self.momentum_correction:
            return
        # v <- m v - rate g keeps old gradients at the old rate.  One factor to v at the change is
        # the same as the paper's factor to m for one step, and needs no new graph.
        factor = float(_evaluate(optimizer.learning_rate)) / before if before else 1.0
        if factor != 1.0:
            _scale(_override_points.momentum_slots(optimizer), factor)


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from `initial_lr / size` to `initial_lr`, batch by batch.

    The many ranks' large batches go with a large learning rate, which early training does not bear
    (Goyal et al., arXiv:1706.02677, section 2.2).

    Args:
      initial_lr: the learning rate at the end of the warm-up, that is the one for all ranks
        together.
      warmup_epochs: how many epochs it takes, 0 or more.
      momentum_correction: as for `LearningRateScheduleCallback`.
      steps_per_epoch: the same.
      verbose: 1 to print one line at the end of the warm-up.
    """

    warmup_epochs: int
    verbose: int
    _is_below: bool

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        who, number = type(self).__name__, "a finite number, 0 or more"
        _require_epoch(who, "warmup_epochs", warmup_epochs, number, least=0)
        super().__init__(
            initial_lr,
            self._multiplier,
            start_epoch=0,
            end_epoch=warmup_epochs,
            staircase=False,
            momentum_correction=momentum_correction,
            steps_per_epoch=steps_per_epoch,
        )
        self.warmup_epochs = warmup_epochs
        self.verbose = verbose
        self._is_below = False  # the full rate, which a batch of the warm-up has not reached

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Notes the epoch; sets the full rate where the warm-up had too few batches for it."""
        super().on_epoch_begin(epoch, logs)
        if self._is_below and epoch >= self.warmup_epochs:
            self._set(float(self.warmup_epochs))

    def _multiplier(self, epoch: float) -> float:
        # One batch ahead, so that the last batch of the warm-up has the full rate.
        done = (epoch + 1.0 / self.steps_per_epoch) / self.warmup_epochs  # type: ignore[operator]
        first = 1.0 / basics.size()
        self._is_below = done < 1.0 - 1e-9
        return first + (1.0 - first) * min(done, 1.0)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Adds the learning rate to the metrics; says when the warm-up is over."""
        super().on_epoch_end(epoch, logs)
        if self.verbose and epoch == self.warmup_epochs - 1:
            rate = float(_evaluate(self.model.optimizer.learning_rate))
            print(f"Epoch {epoch + 1}: the warm-up is over, the learning rate is {rate:g}.")
