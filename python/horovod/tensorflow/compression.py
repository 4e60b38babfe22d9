"""Smaller tensors on the wire: what happens to a tensor before and after a reduction."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.reduce_ops import Adasum, ReduceOp

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "in_op",
    "require_compression",
]


class Compressor:
    """What a compression is: two static functions that undo each other, but for precision.

    To add one, derive from this class and pass the derived class as `compression=`.

    Example:
      >>> class Halves(hvd.Compressor):
      ...     @staticmethod
      ...     def compress(tensor):
      ...         return tensor / 2, None
      ...     @staticmethod
      ...     def decompress(tensor, ctx):
      ...         return tensor * 2
      >>> float(hvd.allreduce(3.0, compression=Halves, name="x"))
      3.0
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


class _CastCompressor(Compressor):
    """Sends float32 and float64 as a float of 16 bits; what has as few, and integers, as they are.

    An allreduce casts by itself, while it packs (`in_op`); these casts are for what has no wire
    dtype: an allgather, a reducescatter, Adasum.
    """

    wire_dtype: tf.DType

    @classmethod
    def narrows(cls, dtype: tf.DType) -> bool:
        """Returns whether tensors of this dtype are sent as another."""
        return bool(dtype.is_floating and dtype.size > cls.wire_dtype.size)

    @classmethod
    def compress(cls, tensor: tf.Tensor) -> tuple[tf.Tensor, Any]:
        """Returns the tensor as `wire_dtype` if that is smaller, and its own dtype."""
        dtype = tensor.dtype
        return (tf.cast(tensor, cls.wire_dtype) if cls.narrows(dtype) else tensor), dtype

    @classmethod
    def decompress(cls, tensor: tf.Tensor, ctx: Any) -> tf.Tensor:
        """Returns the tensor cast back to the dtype `ctx`."""
        return tf.cast(tensor, ctx)


class FP16Compressor(_CastCompressor):
    """Sends float32 and float64 as float16: 11 bits of precision, up to 65,504."""

    wire_dtype = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends float32 and float64 as bfloat16: 8 bits of precision, the range of float32."""

    wire_dtype = tf.bfloat16


class Compression:
    """The compressions to choose from.

    Example:
      >>> hvd.allreduce(tf.constant([1.5]), compression=hvd.Compression.fp16, name="x").numpy()
      array([1.5], dtype=float32)
    """

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def require_compression(who: str, compression: Any) -> None:
    """Raises ValueError unless something, a class or an instance, compresses and decompresses.

    Args:
      who: begins the error's text.
      compression: what the program passed.
    """
    if not all(callable(getattr(compression, what, None)) for what in ("compress", "decompress")):
        raise ValueError(
            f"{who}: compression={compression!r}; pass hvd.Compression.fp16 or a class with "
            "compress and decompress"
        )


def in_op(
    compression: type[Compressor], dtype: tf.DType, op: ReduceOp
) -> tuple[type[Compressor], dict[str, str]]:
    """Leaves the casts of a compression to an allreduce, which makes them while it packs.

    Args:
      compression: what to make of the tensors.
      dtype: of the tensors.
      op: how they are combined.

    Returns:
      The compression that is left to do around the op, and attributes for the op.
    """
    for caster in (FP16Compressor, BF16Compressor):
        if compression is caster and op != Adasum:
            narrower = caster.wire_dtype.name
            return NoneCompressor, {"wire_dtype": narrower} if caster.narrows(dtype) else {}
    return compression, {}
