"""Loading a model with a distributed optimizer."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from horovod.tensorflow.compression import Compression, Compressor, require_compression
from horovod.tensorflow.keras.optimizer import distributed_optimizer
from horovod.tensorflow.other_keras import WHAT_TO_DO, is_keras_3

__all__ = ["load_model"]


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: type[Compressor] = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Loads a Keras model, and makes its optimizer apply the gradients of all ranks.

    A model is saved with the optimizer as it was before `DistributedOptimizer`, so any program can
    load it; this function is for going on with training.  The optimizer keeps its slots, its
    iterations and its learning rate.

    Example:
      >>> import tempfile
      >>> model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
      >>> model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1)), "mse")
      >>> _ = model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     model.save(f"{folder}/model.keras")
      ...     model = hvd.load_model(f"{folder}/model.keras")
      >>> model.fit(tf.ones([4, 2]), tf.ones([4, 1]), verbose=0).epoch
      [0]

    Args:
      filepath: what `model.save` wrote: .keras, .h5 or a SavedModel folder.
      custom_optimizers: optimizer classes of the program, which the file names.
      custom_objects: other objects of the program, by the names in the file.
      compression: for the wire; see `DistributedOptimizer`.
      legacy_opts: accepted for old programs; the file says whether its optimizer is a legacy one.

    Returns:
      The model; one that was saved without an optimizer has none.

    Raises:
      ValueError: `compression` is no compression; or the optimizer's gradients cannot be reduced;
        see `DistributedOptimizer`.
    """
    require_compression("load_model", compression)
    objects = {kind.__name__: kind for kind in custom_optimizers or ()}
    objects.update(custom_objects or {})
    try:
        model = tf.keras.models.load_model(filepath, custom_objects=objects)
    except ValueError as error:
        if "tf_keras" not in sys.modules or not is_keras_3():
            raise
        raise ValueError(
            f"load_model: {error}\nIf tf_keras has written {str(filepath)!r}: {WHAT_TO_DO}"
        ) from error
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        # Past the model's tracking: what a checkpoint of it holds is the optimizer's state, and
        # that it tracks already.
        object.__setattr__(
            model, "optimizer", distributed_optimizer(optimizer, compression=compression)
        )
    return model
