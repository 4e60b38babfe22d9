"""What importing costs, and the names that programs find."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys

import pytest


def test_importing_the_package_loads_neither_tensorflow_nor_a_shared_object() -> None:
    program = (
        "import sys, horovod\n"
        "assert horovod.__version__ == '0.29.0'\n"
        "assert not any(m.split('.')[0] in ('tensorflow', 'numpy') for m in sys.modules)\n"
        "assert 'libhorovod' not in open('/proc/self/maps').read()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd="/")


def test_the_version_is_the_distributions() -> None:
    import horovod

    assert importlib.metadata.version("horovod") == horovod.__version__


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("horovod.torch", "torch.distributed"),
        ("horovod.mxnet", "not part"),
        ("horovod.spark", "horovodrun"),
    ],
)
def test_what_programs_may_import_and_is_not_here_says_so(module: str, words: str) -> None:
    with pytest.raises(ImportError, match=words) as error:
        importlib.import_module(module)
    assert module in str(error.value)


@pytest.mark.parametrize("name", ["TensorFlowKerasState", "TensorFlowState", "run"])
def test_elastic_names_are_there_and_say_when_used_that_they_are_not_built_yet(name: str) -> None:
    hvd = importlib.import_module("horovod.tensorflow")
    elastic = importlib.import_module("horovod.tensorflow.elastic")
    assert hvd.elastic is elastic
    with pytest.raises(NotImplementedError, match=f"{name}: elastic training is not built yet"):
        getattr(elastic, name)(None)
