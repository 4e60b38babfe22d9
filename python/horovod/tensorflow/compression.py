"""Smaller tensors on the wire: what happens to a tensor before and after a reduction."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """What a compression is: two static functions that undo each other, but for precision.

    To add one, derive from this class and pass the derived class as `compression=`.
    """

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Makes a tensor smaller.

        Args:
          tensor: of any shape and dtype.

        Returns:
          The tensor to send, and a context of this compressor's own for `decompress`.
        """
        raise NotImplementedError("a Compressor must define compress(tensor)")

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Undoes `compress`.

        Args:
          tensor: the result of the reduction, of the dtype that `compress` gave.
          ctx: the context that `compress` gave.

        Returns:
          The tensor in its first dtype.
        """
        raise NotImplementedError("a Compressor must define decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the tensor itself and no context."""
        return tensor, None

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor itself."""
        return tensor


class FP16Compressor(Compressor):
    """Sends float32 and float64 as float16; 16-bit floats and integers go as they are."""

    @staticmethod
    def compress(tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the tensor as float16 if that is smaller, and its own dtype."""
        dtype = tensor.dtype
        if dtype.is_floating and dtype.size > tf.float16.size:
            tensor = tf.cast(tensor, tf.float16)
        return tensor, dtype

    @staticmethod
    def decompress(tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor cast back to the dtype `ctx`."""
        return tf.cast(tensor, ctx)


class Compression:
    """The compressions to choose from."""

    none = NoneCompressor
    fp16 = FP16Compressor
