"""Lays out the package as it will be installed: Python, shared objects, generated modules."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tools import gen_knobs

ROOT = Path(__file__).resolve().parents[1]

# From Bazel's output to the place in the package. _tf_ops.so looks for the core in ../lib.
SHARED_OBJECTS = {
    "tf_ops/runtime/libhorovod_core.so": "lib/libhorovod_core.so",
    "tf_ops/adapters/tf/_tf_ops.so": "tensorflow/_tf_ops.so",
}


def stage(target: Path, bazel_bin: Path) -> None:
    """Replaces `target` by a tree that pip can install.

    Args:
        target: folder to write, e.g. build/stage-2.15.1; whatever it holds is removed.
        bazel_bin: Bazel's output folder, with the shared objects built for the right TensorFlow.

    Raises:
        FileNotFoundError: a shared object has not been built.
    """
    shutil.rmtree(target, ignore_errors=True)
    package = target / "python" / "horovod"
    shutil.copytree(
        ROOT / "python" / "horovod",
        package,
        ignore=shutil.ignore_patterns("__pycache__", "*.so", "_knobs.py"),
    )
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, target)
    for built, place in SHARED_OBJECTS.items():
        (package / place).parent.mkdir(exist_ok=True)
        # Not the permissions: Bazel's outputs are read-only.
        shutil.copyfile(bazel_bin / built, package / place)
    table = gen_knobs.parse((ROOT / "tf_ops" / "base" / "config.def").read_text())
    (package / "common" / "_knobs.py").write_text(gen_knobs.to_python(table))


def main() -> None:
    """Runs stage() on the command line's two folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("bazel_bin", type=Path)
    args = parser.parse_args()
    stage(args.target, args.bazel_bin)


if __name__ == "__main__":
    main()
