"""Two small models and the images that they learn, made from a seed.  TensorFlow alone."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

__all__ = ["MODELS", "Model", "batch"]

_CLASSES = 10


class Model(NamedTuple):
    """A network to be trained.

    Attributes:
      kind: a class of modules, called with images [batch, side, side] for logits.
      side: of its square images.
      learning_rate: at which it learns a batch and stays finite.
    """

    kind: type[tf.Module]
    side: int
    learning_rate: float


class _Cnn(tf.Module):  # type: ignore[misc]
    """Two convolutions and two dense layers: 420,000 weights in 8 tensors."""

    def __init__(self) -> None:
        super().__init__()
        draw = _drawing()
        self._kernels = [draw(3, 3, 1, 16), draw(3, 3, 16, 32)]
        self._shifts = [_zeros(16), _zeros(32)]
        self._hidden, self._hidden_shift = draw(7 * 7 * 32, 256), _zeros(256)
        self._out, self._out_shift = draw(256, _CLASSES), _zeros(_CLASSES)

    def __call__(self, images: Any) -> Any:
        signal = images[..., tf.newaxis]
        for kernel, shift in zip(self._kernels, self._shifts):
            signal = tf.nn.relu(tf.nn.conv2d(signal, kernel, 1, "SAME") + shift)
            signal = tf.nn.max_pool2d(signal, 2, 2, "SAME")
        flat = tf.reshape(signal, [-1, 7 * 7 * 32])
        hidden = tf.nn.relu(flat @ self._hidden + self._hidden_shift)
        return hidden @ self._out + self._out_shift


class _Transformer(tf.Module):  # type: ignore[misc]
    """An encoder of two layers; each row of pixels is a token.  32 tensors, 106,000 weights."""

    _WIDTH, _HEADS, _LAYERS, _ROWS = 64, 4, 2, 8

    def __init__(self) -> None:
        super().__init__()
        draw, width = _drawing(), self._WIDTH
        self._embed, self._position = draw(self._ROWS, width), draw(self._ROWS, width)
        self._layers = [
            {
                "mix": draw(width, 3 * width),
                "mix_shift": _zeros(3 * width),
                "join": draw(width, width),
                "join_shift": _zeros(width),
                "widen": draw(width, 4 * width),
                "widen_shift": _zeros(4 * width),
                "narrow": draw(4 * width, width),
                "narrow_shift": _zeros(width),
                "norm_1": _ones(width),
                "norm_1_shift": _zeros(width),
                "norm_2": _ones(width),
                "norm_2_shift": _zeros(width),
            }
            for _ in range(self._LAYERS)
        ]
        self._out, self._out_shift = draw(self._ROWS * width, _CLASSES), _zeros(_CLASSES)

    def __call__(self, images: Any) -> Any:
        tokens = images @ self._embed + self._position
        for layer in self._layers:
            attended = self._attend(tokens, layer) @ layer["join"] + layer["join_shift"]
            tokens = _normalize(tokens + attended, layer["norm_1"], layer["norm_1_shift"])
            hidden = tf.nn.relu(tokens @ layer["widen"] + layer["widen_shift"])
            fed = hidden @ layer["narrow"] + layer["narrow_shift"]
            tokens = _normalize(tokens + fed, layer["norm_2"], layer["norm_2_shift"])
        sentence = tf.reshape(tokens, [-1, self._ROWS * self._WIDTH])
        return sentence @ self._out + self._out_shift

    def _attend(self, tokens: Any, layer: dict[str, Any]) -> Any:
        depth = self._WIDTH // self._HEADS
        mixed = tokens @ layer["mix"] + layer["mix_shift"]
        split = tf.reshape(mixed, [-1, self._ROWS, 3, self._HEADS, depth])
        query, key, value = tf.unstack(tf.transpose(split, [2, 0, 3, 1, 4]))
        scores = tf.nn.softmax(tf.matmul(query, key, transpose_b=True) / math.sqrt(depth))
        heads = tf.transpose(scores @ value, [0, 2, 1, 3])
        return tf.reshape(heads, [-1, self._ROWS, self._WIDTH])


MODELS = {"cnn": Model(_Cnn, 28, 0.02), "transformer": Model(_Transformer, 8, 0.02)}


def batch(side: int, count: int, seed: int) -> tuple[Any, Any]:
    """Makes images: of each class a pattern, which all seeds share, under noise.

    Args:
      side: of the images.
      count: how many.
      seed: for the noise and the classes.

    Returns:
      float32 [count, side, side] and int64 [count].
    """
    patterns = np.random.default_rng(0).normal(size=(_CLASSES, side, side))
    random = np.random.default_rng(seed)
    labels = random.integers(_CLASSES, size=count)
    noise = random.normal(scale=0.5, size=(count, side, side))
    return tf.constant(patterns[labels] + noise, tf.float32), tf.constant(labels, tf.int64)


def _drawing() -> Any:
    """Returns a function that draws weights; the same ones for every model, rank and system."""
    random = np.random.default_rng(1)

    def draw(*shape: int) -> Any:
        scale = math.sqrt(1.0 / math.prod(shape[:-1]))
        return tf.Variable(random.normal(scale=scale, size=shape).astype(np.float32))

    return draw


def _zeros(count: int) -> Any:
    return tf.Variable(tf.zeros([count]))


def _ones(count: int) -> Any:
    return tf.Variable(tf.ones([count]))


def _normalize(tokens: Any, scale: Any, shift: Any) -> Any:
    mean, variance = tf.nn.moments(tokens, axes=[-1], keepdims=True)
    return (tokens - mean) * tf.math.rsqrt(variance + 1e-6) * scale + shift
