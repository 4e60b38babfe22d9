"""The examples in the docstrings of the public functions print what they say, on one rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

# The modules whose functions and classes must have an example where hvd exports them.
MODULES = (
    "horovod.common.basics",
    "horovod.common.process_sets",
    "horovod.tensorflow.collectives",
    "horovod.tensorflow.exchange",
    "horovod.tensorflow.functions",
    "horovod.tensorflow.grouped",
    "horovod.tensorflow.objects",
    "horovod.tensorflow.rank_ops",
)
# Not built yet, or questions about the build alone.
WITHOUT = {
    "ccl_built",
    "cuda_built",
    "ddl_built",
    "gloo_built",
    "gloo_enabled",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rocm_built",
    "start_timeline",
    "stop_timeline",
}
# Their examples call init() themselves.
BEFORE_INIT = {"ProcessSet", "add_process_set", "init", "remove_process_set"}

NAMES = (
    "BroadcastGlobalVariablesOp",
    "ProcessSet",
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
    "cross_rank",
    "cross_size",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "process_set_included_op",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "shutdown",
    "size",
    "size_op",
)


def print_reports() -> None:
    """Runs the examples, and prints what doctest says of each function, "" if all is right."""
    import doctest
    import inspect

    import tensorflow as tf

    import horovod.tensorflow as hvd

    reports: dict[str, Any] = {"exported": []}
    finder = doctest.DocTestFinder(recurse=False)
    for name in hvd.__all__:
        value = getattr(hvd, name)
        if not callable(value) or getattr(value, "__module__", None) not in MODULES:
            continue
        reports["exported"].append(name)
        for test in finder.find(value, name, globs={"hvd": hvd, "tf": tf}):
            if "\nExample:\n" not in inspect.cleandoc(value.__doc__):
                continue
            if name not in BEFORE_INIT:
                hvd.init()
            said: list[str] = []
            doctest.DocTestRunner(verbose=False).run(test, out=said.append)
            reports[name] = "".join(said)
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
