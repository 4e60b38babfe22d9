"""The old place of the collectives; programs still import from here."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from horovod.common.basics import (
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rank,
    rocm_built,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.reduce_ops import Adasum, Average, Max, Min, Product, ReduceOp, Sum
from horovod.tensorflow.averaging import handle_average_backwards_compatibility
from horovod.tensorflow.checks import check_num_rank_power_of_2, gpu_available
from horovod.tensorflow.collectives import (
    allgather,
    barrier,
    broadcast,
    combine_without_factors_of_slices,
    join,
)
from horovod.tensorflow.exchange import alltoall, reducescatter
from horovod.tensorflow.functions import broadcast_
from horovod.tensorflow.grouped import grouped_allgather, grouped_reducescatter
from horovod.tensorflow.rank_ops import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)

__all__ = [
    "Adasum",
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "ccl_built",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_reducescatter",
    "handle_average_backwards_compatibility",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]


def _allreduce(
    tensor: Any,
    name: str | None = None,
    op: ReduceOp = Sum,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> tf.Tensor | tf.IndexedSlices:
    """Combines a tensor over all ranks, by default by summing.

    The arguments are those of `horovod.tensorflow.allreduce`.

    Returns:
      A tensor of the same shape and dtype; slices for slices.

    Raises:
      What `horovod.tensorflow.allreduce` raises.
    """
    return combine_without_factors_of_slices(
        tensor,
        op,
        name=name,
        prescale_factor=prescale_factor,
        postscale_factor=postscale_factor,
        ignore_name_scope=ignore_name_scope,
        process_set=process_set,
    )
