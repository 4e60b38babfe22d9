"""A short fingerprint of a model's weights, to see that all ranks hold the same ones."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

__all__ = ["WeightsDigestHook", "weights_digest"]


def weights_digest(weights: dict[str, np.ndarray[Any, Any]]) -> str:
    """Returns 16 hexadecimal digits of the SHA-256 over names, shapes, types and bytes.

    Args:
      weights: arrays by variable name, in any order.  One bit of difference changes the digest.
    """
    digest = hashlib.sha256()
    for name in sorted(weights):
        value = np.ascontiguousarray(weights[name])
        digest.update(f"{name} {value.shape} {value.dtype.str}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()[:16]


class WeightsDigestHook(tf.train.SessionRunHook):  # type: ignore[misc]  # TensorFlow has no types
    """Takes the digest of all trainable variables when training ends; read it from `digest`.

    A hook, because a rank that writes no checkpoint loses its weights with its session.
    """

    def __init__(self) -> None:
        self.digest = ""  # until training has ended
        self._variables: dict[str, Any] = {}

    def begin(self) -> None:
        self._variables = {variable.name: variable for variable in tf.trainable_variables()}

    def end(self, session: Any) -> None:
        self.digest = weights_digest(session.run(self._variables))
