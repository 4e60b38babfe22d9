"""The public signatures of horovod.tensorflow.keras, as data, like those of horovod.tensorflow."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.unit.test_signatures import GLOBAL, NONE, _text

# Keyword-only names of ours come last and are not part of what old programs rely on.
KERAS = f"""
DistributedOptimizer(optimizer, name=None, device_dense='', device_sparse='', {NONE}, \
sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, \
average_aggregated_gradients=False, num_groups=0, groups=None, {GLOBAL}, \
scale_local_gradients=True, step_counts_updates=False, transform_gradients=None)
PartialDistributedOptimizer(optimizer, name=None, device_dense='', device_sparse='', {NONE}, \
sparse_as_dense=False, gradient_predivide_factor=1.0, op=Average, backward_passes_per_step=1, \
average_aggregated_gradients=False, groups=None, {GLOBAL}, local_layers=None, \
scale_local_gradients=True, step_counts_updates=False, transform_gradients=None)
broadcast_global_variables(root_rank)
allreduce(value, name=None, average=None, prescale_factor=1.0, postscale_factor=1.0, \
op=None, {NONE})
allgather(value, name=None)
broadcast(value, root_rank, name=None)
reducescatter(value, name=None, op=Average)
load_model(filepath, custom_optimizers=None, custom_objects=None, {NONE}, legacy_opts=False)
callbacks.BroadcastGlobalVariablesCallback(root_rank, device='', local_variables=None)
callbacks.MetricAverageCallback(device='')
callbacks.LearningRateScheduleCallback(initial_lr, multiplier, start_epoch=0, end_epoch=None, \
staircase=True, momentum_correction=True, steps_per_epoch=None)
callbacks.LearningRateWarmupCallback(initial_lr, warmup_epochs=5, momentum_correction=True, \
steps_per_epoch=None, verbose=0)
callbacks.BestModelCheckpoint(monitor='val_loss', verbose=0, save_weights_only=False, mode='auto', \
save_freq='epoch')
callbacks.AgreedEarlyStopping(every_batches=1)
"""
LINES = {line.split("(")[0]: line for line in KERAS.strip().splitlines()}


@pytest.mark.parametrize("name", sorted(LINES))
def test_signature(name):
    hvd = importlib.import_module("horovod.tensorflow")
    function = importlib.import_module("horovod.tensorflow.keras")
    for part in name.split("."):
        function = getattr(function, part)
    assert name + _text(hvd, function) == LINES[name]


def test_what_is_ours_is_given_by_name_only():
    keras = importlib.import_module("horovod.tensorflow.keras")
    for function in (keras.DistributedOptimizer, keras.PartialDistributedOptimizer):
        for name in ("step_counts_updates", "transform_gradients"):
            kind = inspect.signature(function).parameters[name].kind
            assert kind is inspect.Parameter.KEYWORD_ONLY


def test_the_names_of_programs_are_there():
    for module in ("horovod.keras", "horovod.tensorflow.keras"):
        found = importlib.import_module(module)
        names = (
            "init rank size local_rank shutdown mpi_built ProcessSet Average Compression callbacks"
        )
        assert [name for name in names.split() if not hasattr(found, name)] == []
