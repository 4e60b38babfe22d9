"""Data-parallel training for TensorFlow: one process per device, gradients combined over all.

    import horovod.tensorflow as hvd
    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer)

Importing this loads TensorFlow and the op library, so that graphs that hold the ops can be read.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

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
from horovod.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from horovod.common.reduce_ops import Adasum, Average, Max, Min, Product, Sum
from horovod.common.util import split_list
from horovod.tensorflow import (
    _ops,
    elastic,
    gradients,  # noqa: F401 - registers them
    mpi_ops,  # noqa: F401 - programs write hvd.mpi_ops
)
from horovod.tensorflow._ops import op_library_path
from horovod.tensorflow.averaging import handle_average_backwards_compatibility
from horovod.tensorflow.checks import (
    check_extension,
    check_num_rank_power_of_2,
    gpu_available,
)
from horovod.tensorflow.collectives import allgather, allreduce, barrier, broadcast, join
from horovod.tensorflow.compression import Compression, Compressor
from horovod.tensorflow.consistency import CheckConsistencyHook, check_consistency
from horovod.tensorflow.exchange import alltoall, reducescatter
from horovod.tensorflow.functions import (
    BroadcastGlobalVariablesOp,
    broadcast_,
    broadcast_global_variables,
    broadcast_variables,
)
from horovod.tensorflow.gpu import pin_gpu
from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelper
from horovod.tensorflow.grouped import (
    grouped_allgather,
    grouped_allreduce,
    grouped_reducescatter,
)
from horovod.tensorflow.hooks import BroadcastGlobalVariablesHook
from horovod.tensorflow.metric_hook import MetricAverageHook
from horovod.tensorflow.objects import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
)
from horovod.tensorflow.optimizer import DistributedOptimizer
from horovod.tensorflow.rank_ops import (
    local_rank_op,
    local_size_op,
    process_set_included_op,
    rank_op,
    size_op,
)
from horovod.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape
from horovod.tensorflow.tensorboard_hook import TensorBoardHook
from horovod.tensorflow.variable_refs import refs_to_vars, vars_to_refs

if TYPE_CHECKING:  # they load Keras; see __getattr__
    from horovod.tensorflow.consistency_callback import CheckConsistencyCallback
    from horovod.tensorflow.sync_batch_norm import SyncBatchNormalization

__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "BroadcastGlobalVariablesOp",
    "CheckConsistencyCallback",
    "CheckConsistencyHook",
    "Compression",
    "Compressor",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "Max",
    "MetricAverageHook",
    "Min",
    "PartialDistributedGradientTape",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "TensorBoardHook",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "check_consistency",
    "check_extension",
    "check_num_rank_power_of_2",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "gpu_available",
    "grouped_allgather",
    "grouped_allreduce",
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
    "op_library_path",
    "pin_gpu",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "refs_to_vars",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "split_list",
    "start_timeline",
    "stop_timeline",
    "vars_to_refs",
]

_NOT_BUILT_YET = frozenset({"DistributedAdasumOptimizer"})


_LOADS_KERAS = {
    "CheckConsistencyCallback": "horovod.tensorflow.consistency_callback",
    "SyncBatchNormalization": "horovod.tensorflow.sync_batch_norm",
}
"""Names that are there at their first use, and the modules that have them."""


def __getattr__(name: str) -> object:
    """Loads what needs Keras; says of other names whether they are wrong or not built yet."""
    if name in _LOADS_KERAS:
        return getattr(importlib.import_module(_LOADS_KERAS[name]), name)
    if name in _NOT_BUILT_YET:
        raise AttributeError(f"horovod.tensorflow.{name} is not built yet")
    raise AttributeError(f"module 'horovod.tensorflow' has no attribute {name!r}")


_ops.library()
