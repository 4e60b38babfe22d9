"""The public signatures that programs rely on, as data: names, order and defaults.

What is not built yet is listed, so that the list can only shrink.
"""

from __future__ import annotations

import importlib
import inspect

import pytest

GLOBAL = "process_set=global_process_set"
NONE = "compression=Compression.none"

TENSORFLOW = f"""
init(comm=None, process_sets=None)
shutdown()
is_initialized()
rank()
size()
local_rank()
local_size()
cross_rank()
cross_size()
is_homogeneous()
rank_op(name=None)
local_rank_op(name=None)
size_op(process_set_id=0, name=None)
local_size_op(name=None)
process_set_included_op(process_set_id=0, name=None)
start_timeline(file_path, mark_cycles=False)
stop_timeline()
mpi_threads_supported()
mpi_enabled()
mpi_built()
gloo_enabled()
gloo_built()
nccl_built()
ddl_built()
ccl_built()
cuda_built()
rocm_built()
ProcessSet(ranks_or_comm)
add_process_set(process_set)
remove_process_set(process_set)
allreduce(tensor, average=None, device_dense='', device_sparse='', {NONE}, op=None, \
prescale_factor=1.0, postscale_factor=1.0, name=None, {GLOBAL}, ignore_name_scope=False)
grouped_allreduce(tensors, average=None, device_dense='', device_sparse='', {NONE}, op=None, \
prescale_factor=1.0, postscale_factor=1.0, {GLOBAL}, ignore_name_scope=False, name=None)
allgather(tensor, name=None, ignore_name_scope=False, {GLOBAL})
grouped_allgather(tensors, name=None, ignore_name_scope=False, {GLOBAL})
broadcast(tensor, root_rank, name=None, ignore_name_scope=False, {GLOBAL})
broadcast_(variables, root_rank, name=None, {GLOBAL})
alltoall(tensor, splits=None, name=None, ignore_name_scope=False, {GLOBAL})
reducescatter(tensor, device_dense='', {NONE}, op=Average, name=None, {GLOBAL}, \
ignore_name_scope=False, prescale_factor=1.0, postscale_factor=1.0)
grouped_reducescatter(tensors, device_dense='', {NONE}, op=Average, {GLOBAL}, \
prescale_factor=1.0, postscale_factor=1.0, name=None)
join()
barrier({GLOBAL})
broadcast_variables(variables, root_rank, {GLOBAL}, inplace=False)
broadcast_object(obj, root_rank=0, session=None, name=None, {GLOBAL})
broadcast_object_fn(root_rank=0, session=None, name=None, {GLOBAL})
allgather_object(obj, session=None, name=None, {GLOBAL})
broadcast_global_variables(root_rank)
BroadcastGlobalVariablesHook(root_rank, device='')
BroadcastGlobalVariablesOp(root_rank)
MetricAverageHook(variables=None, {GLOBAL})
TensorBoardHook(logdir, save_steps=100, loss=None, collective_times=False)
Compressor.compress(tensor)
Compressor.decompress(tensor, ctx)
Compression.none.compress(tensor)
Compression.fp16.compress(tensor)
DistributedOptimizer(optimizer, name=None, use_locking=False, device_dense='', device_sparse='', \
{NONE}, sparse_as_dense=False, backward_passes_per_step=1, op=Average, \
gradient_predivide_factor=1.0, average_aggregated_gradients=False, num_groups=0, groups=None, \
{GLOBAL}, scale_local_gradients=True, step_counts_updates=False, transform_gradients=None)
DistributedGradientTape(gradtape, device_dense='', device_sparse='', {NONE}, \
sparse_as_dense=False, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, \
{GLOBAL}, scale_local_gradients=True, transform_gradients=None)
PartialDistributedGradientTape(gradtape, device_dense='', device_sparse='', {NONE}, \
sparse_as_dense=False, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None, \
{GLOBAL}, local_layers=None, scale_local_gradients=True, \
transform_gradients=None)
SyncBatchNormalization(fused=False, **kwargs)
check_consistency(variables, session=None, {GLOBAL})
CheckConsistencyHook(every_n_steps, variables=None, {GLOBAL})
CheckConsistencyCallback(every_n_steps, variables=None, {GLOBAL})
pin_gpu(config=None, memory_growth=True, oversubscribe=False)
op_library_path()
"""

NOT_BUILT_YET = {"DistributedAdasumOptimizer"}

# Modules that programs import names from, beside horovod.tensorflow itself.
OLD_PATHS = {
    "horovod.tensorflow.compression": "Compression Compressor FP16Compressor NoneCompressor",
    "horovod.tensorflow.gradient_aggregation": "LocalGradientAggregationHelper",
    "horovod.tensorflow.functions": "broadcast_global_variables broadcast_variables",
    "horovod.tensorflow.mpi_ops": "Adasum Average Max Min Product Sum _allreduce allgather "
    "alltoall broadcast broadcast_ grouped_allgather handle_average_backwards_compatibility init "
    "is_homogeneous join local_rank local_size rank rank_op reducescatter shutdown size size_op",
    "horovod.tensorflow.sync_batch_norm": "SyncBatchNormalization",
    "horovod.tensorflow.util": "_executing_eagerly check_extension refs_to_vars split_list "
    "vars_to_refs",
    "horovod.tensorflow": "Adasum Average LocalGradientAggregationHelper Max Min Product Sum "
    "check_extension check_num_rank_power_of_2 global_process_set gpu_available "
    "handle_average_backwards_compatibility mpi_ops refs_to_vars split_list vars_to_refs",
}

LINES = {line.split("(")[0]: line for line in TENSORFLOW.strip().splitlines()}


@pytest.fixture(scope="module")
def hvd():
    return importlib.import_module("horovod.tensorflow")


def _text(hvd, function) -> str:
    """Writes a signature as the table has it."""
    known = {id(hvd.global_process_set): "global_process_set", id(hvd.Compression.none): "none"}
    parts = []
    for parameter in inspect.signature(function).parameters.values():
        default = parameter.default
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}")
        elif default is inspect.Parameter.empty:
            parts.append(parameter.name)
        elif default is hvd.Compression.none:
            parts.append(f"{parameter.name}=Compression.none")
        elif default is hvd.Average:
            parts.append(f"{parameter.name}=Average")
        else:
            parts.append(f"{parameter.name}={known.get(id(default)) or repr(default)}")
    return f"({', '.join(parts)})"


@pytest.mark.parametrize("name", sorted(set(LINES) - NOT_BUILT_YET))
def test_signature(hvd, name):
    function = hvd
    for part in name.split("."):
        function = getattr(function, part)
    assert name + _text(hvd, function) == LINES[name]


@pytest.mark.parametrize("name", sorted(NOT_BUILT_YET))
def test_what_is_not_built_yet_is_absent_and_says_so(hvd, name):
    assert not hasattr(hvd, name)
    with pytest.raises(AttributeError, match="not built yet"):
        getattr(hvd, name)


@pytest.mark.parametrize("module", sorted(OLD_PATHS))
def test_old_paths_have_the_names_that_programs_import(module):
    names = OLD_PATHS[module].split()
    found = importlib.import_module(module)
    assert [name for name in names if not hasattr(found, name)] == []


@pytest.mark.parametrize("module", sorted(OLD_PATHS))
def test_all_is_sorted_and_true(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == found.__all__
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_reductions_keep_their_numbers(hvd):
    """They are attributes of ops in saved graphs."""
    numbers = [hvd.Average, hvd.Sum, hvd.Adasum, hvd.Min, hvd.Max, hvd.Product]
    assert [int(op) for op in numbers] == [0, 1, 2, 3, 4, 5]


def test_version_is_digits_and_dots():
    version = importlib.import_module("horovod").__version__
    assert tuple(int(part) for part in version.split(".")) >= (0, 29, 0)
