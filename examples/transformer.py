"""A small transformer encoder that reads an image as a sentence: one token per row of pixels.

Nothing here knows of Horovod; it stands for the model of your own program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow.compat.v1 as tf

__all__ = ["EncoderSize", "encoder_logits"]


class EncoderSize(NamedTuple):
    """The encoder's dimensions.  `width` is a multiple of `heads`."""

    width: int = 64
    heads: int = 4
    layers: int = 2
    dropout: float = 0.1  # share of activations dropped while training


def encoder_logits(
    images: Any,
    *,
    num_levels: int,
    num_classes: int,
    is_training: bool,
    encoder: EncoderSize = EncoderSize(),  # noqa: B008  # a constant tuple
) -> Any:
    """Builds the model in the default graph.

    Args:
      images: int32 [batch, rows, columns], pixels from 0 to num_levels - 1.
      num_levels: number of values a pixel can have.
      num_classes: number of classes.
      is_training: whether activations are dropped.
      encoder: its dimensions.

    Returns:
      Logits, float32 [batch, num_classes].
    """
    dropped = encoder.dropout if is_training else 0.0
    with tf.variable_scope("encoder"):
        tokens = _embed(images, num_levels, encoder.width)
        tokens = _drop(_normalize(tokens, "embedding_norm"), dropped)
        for layer in range(encoder.layers):
            with tf.variable_scope(f"layer_{layer}"):
                attended = _attend(tokens, encoder)
                tokens = _normalize(tokens + _drop(attended, dropped), "attention_norm")
                hidden = tf.nn.relu(_dense(tokens, 4 * encoder.width, "feed_forward_in"))
                fed = _dense(hidden, encoder.width, "feed_forward_out")
                tokens = _normalize(tokens + _drop(fed, dropped), "feed_forward_norm")
        rows = tokens.shape[1]
        sentence = tf.reshape(tokens, [-1, rows * encoder.width])
    return _dense(_drop(sentence, dropped), num_classes, "classifier")


def _embed(images: Any, num_levels: int, width: int) -> Any:
    """Looks up [batch, rows, width] tokens: a vector per (column, level) and one per row."""
    _, rows, columns = images.shape
    table = tf.get_variable(
        "pixel_embedding", [columns * num_levels, width], initializer=_normal(0.1)
    )
    # The gradient of a gather is IndexedSlices: values for the rows that this batch looked up.
    pixels = tf.gather(table, images + tf.range(columns) * num_levels)
    position = tf.get_variable("position_embedding", [rows, width], initializer=_normal(0.1))
    return tf.reduce_sum(pixels, axis=2) + position


def _attend(tokens: Any, encoder: EncoderSize) -> Any:
    """Multi-head self-attention: [batch, rows, width] to the same."""
    _, rows, width = tokens.shape
    head_width = width // encoder.heads

    def heads(name: str) -> Any:  # [batch, heads, rows, head_width]
        split = tf.reshape(_dense(tokens, width, name), [-1, rows, encoder.heads, head_width])
        return tf.transpose(split, [0, 2, 1, 3])

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = tf.matmul(query, key, transpose_b=True) * float(head_width) ** -0.5
    mixed = tf.transpose(tf.matmul(tf.nn.softmax(scores), value), [0, 2, 1, 3])
    return _dense(tf.reshape(mixed, [-1, rows, width]), width, "attention_out")


def _dense(inputs: Any, units: int, name: str) -> Any:
    """[..., n] to [..., units], as one matrix product over the last axis."""
    with tf.variable_scope(name):
        kernel = tf.get_variable(
            "kernel", [inputs.shape[-1], units], initializer=tf.glorot_uniform_initializer()
        )
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        product = tf.matmul(tf.reshape(inputs, [-1, inputs.shape[-1]]), kernel) + bias
        return tf.reshape(product, [-1, *inputs.shape[1:-1], units])


def _normalize(inputs: Any, name: str) -> Any:
    """Layer normalization over the last axis."""
    with tf.variable_scope(name):
        scale = tf.get_variable("scale", [inputs.shape[-1]], initializer=tf.ones_initializer())
        shift = tf.get_variable("shift", [inputs.shape[-1]], initializer=tf.zeros_initializer())
        mean, variance = tf.nn.moments(inputs, axes=[-1], keepdims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, shift, scale, 1e-6)


def _drop(inputs: Any, share: float) -> Any:
    return tf.nn.dropout(inputs, rate=share) if share > 0 else inputs


def _normal(stddev: float) -> Any:
    return tf.truncated_normal_initializer(stddev=stddev)
