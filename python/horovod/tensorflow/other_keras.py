"""What to say to a program that mixes `tf.keras` with a Keras of another name.

From TensorFlow 2.16 on `tf.keras` is Keras 3, or tf_keras, which is Keras 2, where the environment
says TF_USE_LEGACY_KERAS=1.  A program may import tf_keras without saying so.  Optimizers then work,
as each becomes one of its own class; callbacks and layers of ours are of `tf.keras`, and do not.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["RefusesTfKeras", "WHAT_TO_DO", "is_keras_3", "is_of_tf_keras_beside_3"]

WHAT_TO_DO = (
    "tf.keras is Keras 3; set TF_USE_LEGACY_KERAS=1 in the environment of the program, and it is "
    "tf_keras"
)


def is_keras_3() -> bool:
    """Returns whether `tf.keras` is Keras 3."""
    return hasattr(tf.keras, "version")  # which Keras 2 lacks


def is_of_tf_keras_beside_3(thing: Any) -> bool:
    """Returns whether an object is of tf_keras though `tf.keras` is Keras 3.

    Args:
      thing: an instance of any class.
    """
    modules = {base.__module__.split(".")[0] for base in type(thing).__mro__}
    return "tf_keras" in modules and is_keras_3()


class RefusesTfKeras:
    """A base of callbacks that refuse a model which would not call them."""

    def set_model(self, model: Any) -> None:
        """Takes the model that is about to be trained.

        Raises:
          ValueError: it is of tf_keras, and `tf.keras` is Keras 3.
        """
        if is_of_tf_keras_beside_3(model):
            raise ValueError(
                f"{type(self).__name__}: model {model.name!r} is of tf_keras; {WHAT_TO_DO}"
            )
        super().set_model(model)  # type: ignore[misc]
