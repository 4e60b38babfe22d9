"""What importing costs, and the names that programs find."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys


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
