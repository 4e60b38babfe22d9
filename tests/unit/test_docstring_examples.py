"""The examples in the docstrings of the public functions print what they say, on one rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# Not built yet; or for the sessions of graph-mode Keras, which one process has once.
WITHOUT = {"keras.broadcast_global_variables", "start_timeline", "stop_timeline"}
# Their examples call init() themselves.
BEFORE_INIT = {"ProcessSet", "add_process_set", "init", "remove_process_set"}

NAMES = (
    "BroadcastGlobalVariablesHook",
    "BroadcastGlobalVariablesOp",
    "CheckConsistencyCallback",
    "CheckConsistencyHook",
    "Compression",
    "Compressor",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "MetricAverageHook",
    "PartialDistributedGradientTape",
    "ProcessSet",
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
    "keras.DistributedOptimizer",
    "keras.PartialDistributedOptimizer",
    "keras.allgather",
    "keras.allreduce",
    "keras.broadcast",
    "keras.load_model",
    "keras.reducescatter",
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
    "vars_to_refs",
)


def print_reports() -> None:
    """Runs the examples, and prints what doctest says of each function, "" if all is right.

    Those of `horovod.tensorflow.keras` that are other functions there are "keras.NAME".
    """
    import doctest
    import inspect

    import tensorflow as tf

    import horovod.tensorflow
    import horovod.tensorflow.keras

    reports: dict[str, Any] = {"exported": []}
    finder = doctest.DocTestFinder(recurse=False)
    for prefix, hvd in (("", horovod.tensorflow), ("keras.", horovod.tensorflow.keras)):
        for name in hvd.__all__:
            value = getattr(hvd, name)
            known = prefix and value is getattr(horovod.tensorflow, name, None)
            if known or not (inspect.isfunction(value) or inspect.isclass(value)):
                continue
            reports["exported"].append(prefix + name)
            if "\nExample:\n" not in inspect.cleandoc(value.__doc__):
                continue
            if name not in BEFORE_INIT:
                hvd.init()
            said: list[str] = []
            for test in finder.find(value, name, module=False, globs={"hvd": hvd, "tf": tf}):
                doctest.DocTestRunner(verbose=False).run(test, out=said.append)
            reports[prefix + name] = "".join(said)
            hvd.shutdown()
    print(json.dumps(reports))


@pytest.fixture(scope="module")
def reports() -> Any:
    """What `print_reports` prints in a process that no launcher has started."""
    launchers = ("HOROVOD_", "OMPI_", "PMI")
    env = {name: text for name, text in os.environ.items() if not name.startswith(launchers)}
    env["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    program = f"from {__name__} import print_reports; print_reports()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        timeout=120,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_no_public_function_is_forgotten(reports: Any) -> None:
    assert set(reports["exported"]) == set(NAMES) | WITHOUT


@pytest.mark.parametrize("name", NAMES)
def test_the_example_prints_what_it_says(reports: Any, name: str) -> None:
    assert name in reports, f"{name} has no section 'Example:' with lines of >>>"
    assert reports[name] == "", reports[name]
