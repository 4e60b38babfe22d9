"""Batch normalization with the moments of all ranks' batches.

For Keras 2 and Keras 3, whichever `tf.keras` is.  Importing this loads Keras, so that
`horovod.tensorflow` does it at the first use only.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from horovod.common.reduce_ops import Sum
from horovod.tensorflow import _compat
from horovod.tensorflow.collectives import allreduce
from horovod.tensorflow.other_keras import WHAT_TO_DO, is_of_tf_keras_beside_3

__all__ = ["SyncBatchNormalization"]

_Moments = tuple[tf.Tensor, tf.Tensor]
_NAME = "sync_batch_normalization"

_training: contextvars.ContextVar[Any] = contextvars.ContextVar("training", default=True)
"""What Keras 2 was told, on the way from where it finds out to `_moments`."""


def _moments_of_all_ranks(
    inputs: tf.Tensor, axes: Sequence[int], keep_dims: bool, mask: Any, layer: str
) -> _Moments:
    """Computes mean and variance over all ranks' rows, by one allreduce.

    Each rank gives its count, sum and sum of squares, so ranks weigh as much as they have rows; a
    rank may have none.  A sum of squares of float32 would lose the variance where the mean is
    large, so each rank takes its squares around its own mean, and the three travel as float64.

    Args:
      inputs: float32 or float64, any shape.
      axes: those to reduce.
      keep_dims: whether they stay, with length 1.
      mask: None, or which rows count: bool or numbers, of the shape of the inputs but for the last
        dimension.
      layer: the name of the layer, for the name of the allreduce.

    Returns:
      Mean and variance (of the population), of the dtype of the inputs.
    """
    if mask is None:
        weighted = inputs
        shape = tf.shape(inputs, out_type=tf.int64)
        count = tf.reduce_prod(tf.gather(shape, tf.constant(axes, tf.int32)))
    else:
        weights = tf.expand_dims(tf.cast(mask, inputs.dtype), axis=-1)
        weights = tf.broadcast_to(weights, tf.shape(inputs))
        weighted = weights * inputs
        count = tf.reduce_sum(weights, axes, keepdims=True)
    total = tf.reduce_sum(weighted, axes, keepdims=True)
    # Around any center the squares are right, and so is their gradient.
    center = tf.stop_gradient(tf.math.divide_no_nan(total, tf.cast(count, inputs.dtype)))
    deviation = tf.math.squared_difference(inputs, center)
    around = tf.reduce_sum(deviation if mask is None else weights * deviation, axes, keepdims=True)

    total, around, center = (tf.cast(part, tf.float64) for part in (total, around, center))
    count = tf.zeros_like(total) + tf.cast(count, tf.float64)
    squares = around + center * (2 * total - count * center)
    # The gradient of the sum is the sum of the ranks' gradients: this rank's rows are in every
    # rank's output.
    sums = allreduce(tf.stack([total, squares, count]), op=Sum, name=f"{layer}_moments")
    total, squares, count = tf.unstack(sums)
    mean = tf.math.divide_no_nan(total, count)
    variance = tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0.0)
    if not keep_dims:
        mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
    return tf.cast(mean, inputs.dtype), tf.cast(variance, inputs.dtype)


class _SyncKeras2(tf.keras.layers.BatchNormalization):
    """The moments of Keras 2, with its renorm and virtual batches."""

    def _get_training_value(self, training: Any = None) -> Any:
        value = super()._get_training_value(training)
        _training.set(value)
        return value

    @tf.autograph.experimental.do_not_convert
    def _moments(
        self, inputs: tf.Tensor, reduction_axes: Sequence[int], keep_dims: bool, mask: Any = None
    ) -> _Moments:
        training = _training.get()
        _training.set(True)  # it may be a tensor, which keeps its graph alive
        alone = functools.partial(super()._moments, inputs, reduction_axes, keep_dims, mask)
        if _compat.saving_model():
            return alone()
        of_all = functools.partial(
            _moments_of_all_ranks, inputs, reduction_axes, keep_dims, mask, self.name
        )
        training = tf.cast(training, tf.bool)
        known = tf.get_static_value(training)
        if known is None:
            # Keras computes the moments in any case and chooses later, but a rank that evaluates
            # by itself must not wait for the others.
            return tf.cond(training, of_all, alone)
        return of_all() if known else alone()


class _SyncKeras3(tf.keras.layers.BatchNormalization):
    """The moments of Keras 3, on its TensorFlow backend."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False  # XLA has no kernels of ours, so "auto" must not choose it

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_of_tf_keras_beside_3(inputs):  # which would make ops of it, and train no weight
            raise ValueError(f"{self.name}: the input {inputs!r} is of tf_keras; {WHAT_TO_DO}")
        return super().__call__(inputs, *args, **kwargs)

    @tf.autograph.experimental.do_not_convert
    def _moments(self, inputs: tf.Tensor, mask: Any) -> _Moments:
        if _compat.saving_model():
            return super()._moments(inputs, mask)
        dims = inputs.shape.rank
        axes = [axis for axis in range(dims) if axis != self.axis % dims]
        return _moments_of_all_ranks(inputs, axes, False, mask, self.name)


def _base() -> Any:
    """Returns the class for this Keras.

    Raises:
      ImportError: its BatchNormalization computes the moments in no way that is known here.
    """
    moments = getattr(tf.keras.layers.BatchNormalization, "_moments", None)
    parameters = list(inspect.signature(moments).parameters) if moments else []
    if parameters == ["self", "inputs", "reduction_axes", "keep_dims", "mask"]:
        return _SyncKeras2
    if parameters == ["self", "inputs", "mask"]:
        return _SyncKeras3
    raise ImportError(
        "SyncBatchNormalization: tf.keras.layers.BatchNormalization of TensorFlow "
        f"{tf.__version__} has _moments({', '.join(parameters)}), which is not known here; use a "
        "TensorFlow that the README lists, or BatchNormalization"
    )


_Base: Any = _base()


class SyncBatchNormalization(_Base):
    """Batch normalization with the moments of all ranks' batches.

    In training, each call is one small allreduce, and one more in the backward pass, so that all
    ranks must call the layer alike.  Ranks weigh as much as they have samples: 8 on one and 4 on
    another are normalized as 12 on one.  The moving moments are then the same on all ranks.  At
    inference they are used, and nothing is sent.

    A saved model holds a plain `BatchNormalization`, in every format, and loads where this package
    is not.  To go on training with it, load it with
    `custom_objects={"BatchNormalization": hvd.SyncBatchNormalization}`.

    With `renorm=True` (Keras 2) the corrections follow from the moments of all ranks.  With
    `virtual_batch_size` (Keras 2) the first virtual batch of each rank goes with the first ones of
    the others, and so on: every rank must have as many.

    Example:
      >>> layer = hvd.SyncBatchNormalization()
      >>> x = [[0.0], [2.0]] if hvd.rank() == 0 else [[4.0], [6.0]]
      >>> layer(tf.constant(x), training=True).numpy().round(2)  # rank 0 of 2: -1.34 and -0.45
      array([[-1.],
             [ 1.]], dtype=float32)
    """

    def __init__(self, fused: bool | None = False, **kwargs: Any) -> None:
        """Makes a layer.

        Args:
          fused: False or None.  The fused kernel has its own moments.
          **kwargs: as for `tf.keras.layers.BatchNormalization`.  The default of `name` is
            "sync_batch_normalization", with a number from the second on.

        Raises:
          ValueError: fused=True; synchronized=True, which is for `tf.distribute`; or Keras runs on
            another backend than TensorFlow.
        """
        who = "SyncBatchNormalization"
        if fused:
            raise ValueError(
                f"{who}: fused=True: the fused kernel computes moments of one rank; leave it out"
            )
        if kwargs.get("synchronized"):
            raise ValueError(
                f"{who}: synchronized=True is for replicas of tf.distribute; leave it out, this "
                "layer synchronizes the ranks by itself"
            )
        if tf.keras.backend.backend() != "tensorflow":
            raise ValueError(
                f"{who}: Keras runs on {tf.keras.backend.backend()!r}; set KERAS_BACKEND=tensorflow"
            )
        if not kwargs.get("name"):
            number = tf.keras.backend.get_uid(_NAME) - 1
            kwargs["name"] = f"{_NAME}_{number}" if number else _NAME
        if _Base is _SyncKeras2:
            kwargs["fused"] = False
        super().__init__(**kwargs)


def _pass_as(base: type) -> None:
    """Gives the class the name under which Keras saves its objects: that of the plain layer."""
    _, *parameters = inspect.signature(SyncBatchNormalization.__init__).parameters.values()
    attributes: dict[str, Any] = {
        name: getattr(base, name) for name in ("__name__", "__qualname__", "__module__")
    }
    # `inspect` would show the (*args, **kwargs) of Keras' metaclass.
    attributes["__signature__"] = inspect.Signature(parameters)
    for name, value in attributes.items():
        setattr(SyncBatchNormalization, name, value)


_pass_as(tf.keras.layers.BatchNormalization)
