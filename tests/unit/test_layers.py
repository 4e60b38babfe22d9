"""Who may include or import whom. The tables are the architecture; this test keeps them true."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Room -> what it may include besides itself, as prefixes under tf_ops/. Bottom to top.
_TO_TRANSPORT = ("base/", "device/", "transport/")
_TO_FUSION = (*_TO_TRANSPORT, "collectives/", "fusion/")
CC = {
    "base": (),
    "device": ("base/",),
    "transport": ("base/", "device/"),
    "collectives": _TO_TRANSPORT,
    "fusion": (*_TO_TRANSPORT, "collectives/"),
    "coordinator": _TO_FUSION,
    "runtime": (*_TO_FUSION, "coordinator/"),
    "adapters": ("runtime/c_api.h",),
}
# The one place, under tf_ops/, that may include a vendor's headers.
VENDOR = {
    "cuda": "device/",
    "mpi.h": "transport/mpi/",
    "nccl.h": "transport/nccl/",
    "sodium": "transport/net/",
    "tensorflow/": "adapters/tf/",
    "torch/": "adapters/torch/",
    "xla/": "adapters/tf/",
    "absl/": "adapters/tf/",
}
# One transport's folder is entered by its row in the registry; runtime enters by the registry.
ONE_TRANSPORT = re.compile(r"transport/(local|shm|tcp|mpi|nccl)/")
# What transports between processes share.
NET = "transport/net/"
MAY_USE_NET = (NET, "transport/shm/", "transport/tcp/", "transport/registry.cc")
REGISTRY = ("transport/registry.h", "transport/registry.cc")
MAY_USE_REGISTRY = ("runtime/", *REGISTRY)

# Part of the package -> what it may import besides itself. Bottom to top.
PY = {
    "common": (),
    "elastic": ("common",),
    "runner": ("common", "elastic"),
    "tensorflow": ("common", "elastic"),
    "keras": ("common", "elastic", "tensorflow"),
}
FRAMEWORKS = {"keras", "tensorflow", "tf_keras", "torch"}
MAY_USE_FRAMEWORKS = ("keras", "tensorflow")
STDLIB_ONLY = ("common",)


def cc_violations(root: Path) -> Iterator[str]:
    """Yields a sentence for each #include under root/tf_ops that the tables forbid."""
    base = root / "tf_ops"
    for path in sorted(base.rglob("*")):
        if path.suffix not in (".h", ".cc", ".cu", ".def"):
            continue
        here = path.relative_to(base).as_posix()
        for target in re.findall(r'^\s*#\s*include\s*["<]([^">]+)', path.read_text(), re.MULTILINE):
            why = _cc_violation(here, target)
            if why:
                yield f"tf_ops/{here} includes {target}: {why}"


def _cc_violation(here: str, target: str) -> str:
    for prefix, home in VENDOR.items():
        if target.startswith(prefix) and not here.startswith(home):
            return f"only tf_ops/{home} may"
    if not target.startswith("tf_ops/"):
        return ""
    used = target[len("tf_ops/") :]
    room = here.split("/")[0]
    if room not in CC:
        return f"{room} is no room of the table"
    if not used.startswith((f"{room}/", *CC[room])):
        return f"{room} may include only {', '.join(CC[room]) or 'itself'}"
    one = ONE_TRANSPORT.match(used)
    if one and not here.startswith((one.group(), *REGISTRY)):
        return "only that folder and the registry may"
    if used.startswith(NET) and not here.startswith(MAY_USE_NET):
        return f"only {', '.join(MAY_USE_NET)} may"
    if used in REGISTRY and not here.startswith(MAY_USE_REGISTRY):
        return "only runtime may"
    return ""


def py_violations(root: Path) -> Iterator[str]:
    """Yields a sentence for each import under root/python/horovod that the tables forbid."""
    base = root / "python" / "horovod"
    for path in sorted(base.rglob("*.py")):
        here = path.relative_to(base)
        part = here.parts[0] if len(here.parts) > 1 else ""
        package = ["horovod", *here.parts[:-1]]
        for target in _imports(ast.parse(path.read_text()), package):
            why = _py_violation(part, target)
            if why:
                yield f"horovod/{here.as_posix()} imports {target}: {why}"


def _imports(tree: ast.Module, package: list[str]) -> Iterator[str]:
    """Yields the absolute dotted name of everything imported anywhere in the module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*above, *([node.module] if node.module else [])])
            # `from horovod import runner` names a part in its second half.
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _py_violation(part: str, target: str) -> str:
    top, _, rest = target.partition(".")
    if top in FRAMEWORKS and part not in MAY_USE_FRAMEWORKS:
        return f"only horovod.{' and horovod.'.join(MAY_USE_FRAMEWORKS)} may"
    if top != "horovod":
        outside = part in STDLIB_ONLY and top not in sys.stdlib_module_names
        return f"horovod.{part} uses the standard library only" if outside else ""
    used = rest.split(".")[0]
    if used not in PY or used == part:
        return ""
    if part and part not in PY:
        return f"horovod.{part} is no part of the table"
    if not part:
        return "importing horovod alone must load none of its parts"
    return "" if used in PY[part] else f"horovod.{part} may not"


def test_cc_includes_point_down() -> None:
    assert list(cc_violations(ROOT)) == []


def test_py_imports_point_down() -> None:
    assert list(py_violations(ROOT)) == []


def test_there_is_something_to_look_at() -> None:
    assert any((ROOT / "tf_ops" / "base").glob("*.h"))
    assert any((ROOT / "python" / "horovod" / "common").glob("*.py"))


@pytest.mark.parametrize("table", [CC, PY], ids=["cc", "py"])
def test_the_tables_have_no_cycle(table: dict[str, tuple[str, ...]]) -> None:
    rooms = list(table)
    for index, room in enumerate(rooms):
        assert {used.split("/")[0] for used in table[room]} <= set(rooms[:index])


@pytest.mark.parametrize(
    ("where", "line", "allowed"),
    [
        ("base/status.h", '#include "tf_ops/device/copy.h"', False),
        ("device/copy.cc", '#include "tf_ops/base/status.h"', True),
        ("device/copy.cc", '  #  include "tf_ops/transport/transport.h"', False),
        ("fusion/plan.cc", '#include "tf_ops/coordinator/queue.h"', False),
        ("adapters/tf/op.cc", '#include "tf_ops/runtime/c_api.h"', True),
        ("adapters/tf/op.cc", '#include "tf_ops/runtime/runtime.h"', False),
        ("adapters/tf/op.cc", '#include "tf_ops/base/status.h"', False),
        ("transport/tcp/a.cc", '#include "tf_ops/transport/tcp/b.h"', True),
        ("transport/tcp/a.cc", '#include "tf_ops/transport/local/b.h"', False),
        ("transport/world.cc", '#include "tf_ops/transport/tcp/b.h"', False),
        ("transport/registry.cc", '#include "tf_ops/transport/tcp/b.h"', True),
        ("runtime/init.cc", '#include "tf_ops/transport/registry.h"', True),
        ("coordinator/loop.cc", '#include "tf_ops/transport/registry.h"', False),
        ("coordinator/loop.cc", '#include "tf_ops/transport/tcp/b.h"', False),
        ("coordinator/loop.cc", "#include <sodium.h>", False),
        ("transport/net/a.cc", "#include <sodium.h>", True),
        ("transport/tcp/a.cc", "#include <sodium.h>", False),
        ("transport/tcp/a.cc", '#include "tf_ops/transport/net/b.h"', True),
        ("transport/shm/a.cc", '#include "tf_ops/transport/net/b.h"', True),
        ("transport/net/a.cc", '#include "tf_ops/transport/shm/b.h"', False),
        ("transport/registry.h", '#include "tf_ops/transport/net/b.h"', False),
        ("runtime/init.cc", '#include "tf_ops/transport/net/b.h"', False),
        ("runtime/init.cc", '#include "tensorflow/core/framework/op.h"', False),
        ("adapters/tf/op.cc", '#include "tensorflow/core/framework/op.h"', True),
        ("attic/a.cc", '#include "tf_ops/base/status.h"', False),
    ],
)
def test_a_planted_include_is_seen(tmp_path: Path, where: str, line: str, allowed: bool) -> None:
    path = tmp_path / "tf_ops" / where
    path.parent.mkdir(parents=True)
    path.write_text(f"// A file.\n{line}\n")
    assert (list(cc_violations(tmp_path)) == []) == allowed


@pytest.mark.parametrize(
    ("where", "line", "allowed"),
    [
        ("common/core.py", "import ctypes, os.path", True),
        ("common/core.py", "import numpy", False),
        ("common/core.py", "from horovod.common import config", True),
        ("common/core.py", "from horovod import runner", False),
        ("common/core.py", "from ..runner import launch", False),
        ("common/core.py", "from . import config", True),
        ("runner/launch.py", "def f():\n    import tensorflow as tf", False),
        ("runner/launch.py", "import yaml", True),
        ("runner/launch.py", "import horovod.tensorflow", False),
        ("tensorflow/optimizer.py", "import tensorflow as tf", True),
        ("tensorflow/optimizer.py", "from horovod.runner import launch", False),
        ("tensorflow/optimizer.py", "from horovod import __version__", True),
        ("keras/callbacks.py", "from horovod.tensorflow import allreduce", True),
        ("__init__.py", "from horovod.common import basics", False),
        ("__init__.py", "from .common import basics", False),
        ("attic/a.py", "from horovod.common import basics", False),
    ],
)
def test_a_planted_import_is_seen(tmp_path: Path, where: str, line: str, allowed: bool) -> None:
    path = tmp_path / "python" / "horovod" / where
    path.parent.mkdir(parents=True)
    path.write_text(f'"""A module."""\n{line}\n')
    assert (list(py_violations(tmp_path)) == []) == allowed
