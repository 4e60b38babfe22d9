"""One GPU for each rank."""

from __future__ import annotations

import os
from typing import Any

import tensorflow as tf

from horovod.common import basics

__all__ = ["pin_gpu"]


def pin_gpu(
    config: tf.compat.v1.ConfigProto | None = None,
    *,
    memory_growth: bool = True,
    oversubscribe: bool = False,
) -> Any:
    """Gives this rank the GPU of its local rank, and no other.

    To be called after `init()` and before TensorFlow runs its first op.  Without a GPU it does
    nothing.

    A session of `tf.compat.v1` has its devices from its own config:

        config = hvd.pin_gpu(tf.compat.v1.ConfigProto())
        with tf.compat.v1.Session(config=config) as session:

    Example:
      >>> hvd.pin_gpu()  # where there is no GPU: None; else local rank 1 gets GPU:1

    Args:
      config: of a session, or None for eager code and `tf.function`.  It is changed.
      memory_growth: whether TensorFlow takes the GPU's memory as it needs it, rather than all of
        it at once.
      oversubscribe: whether ranks may share GPUs where there are fewer than ranks on this host:
        local rank r gets number r modulo their number.

    Returns:
      With a config, the config.  Without, the `tf.config.PhysicalDevice`; None where there is no
      GPU.

    Raises:
      ValueError: `init()` was not called; or this host has more ranks than TensorFlow sees GPUs.
        All ranks of the host get it.
      RuntimeError: TensorFlow has used its GPUs already.
    """
    local_rank, local_size = basics.local_rank(), basics.local_size()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        return config
    if local_size > len(gpus) and not oversubscribe:
        raise ValueError(
            f"pin_gpu: rank {basics.rank()} is local rank {local_rank} of {local_size}, but "
            f"TensorFlow sees {len(gpus)} GPU(s) here (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); start at most {len(gpus)} ranks "
            "on this host, let ranks share GPUs by oversubscribe=True, or leave pin_gpu out where "
            "the launcher has given each rank a GPU of its own"
        )
    place = local_rank % len(gpus)
    if config is not None:
        config.gpu_options.visible_device_list = str(place)
        config.gpu_options.allow_growth = memory_growth
        return config
    try:
        tf.config.set_visible_devices(gpus[place], "GPU")
        tf.config.experimental.set_memory_growth(gpus[place], memory_growth)
    except RuntimeError as error:
        raise RuntimeError(
            f"pin_gpu: TensorFlow has used its GPUs already, so rank {basics.rank()} cannot have "
            f"number {place} alone ({error}); call it right after hvd.init()"
        ) from error
    return gpus[place]
