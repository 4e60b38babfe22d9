"""Installs the staged package into the venv whose Python runs this, if anything in it changed."""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

# First by the loader's own hand, whose words name the missing library or symbol; then as users do.
IMPORT_TEST = """
import ctypes, sys, tensorflow
core, adapter = sys.argv[1:]
ctypes.CDLL(core, mode=ctypes.RTLD_GLOBAL)
tensorflow.load_op_library(adapter)
import horovod.tensorflow
print("[build] import horovod.tensorflow: ok, horovod", horovod.__version__,
      "on TensorFlow", tensorflow.__version__)
"""


def digest(files: list[Path], root: Path) -> str:
    """Returns a SHA-256 in hex over the files' places under `root` and their bytes."""
    total = hashlib.sha256()
    for path in sorted(files):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(root)} {content}\n".encode())
    return total.hexdigest()


def is_current(stamp: Path, want: str) -> bool:
    """Tells whether the step that writes `stamp` was last done for `want`."""
    return stamp.exists() and stamp.read_text() == want


def pip(*args: str) -> None:
    """Runs this interpreter's pip; its output is shown only when it fails.

    Raises:
        SystemExit: pip failed.
    """
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *args]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n[build] error: {' '.join(command)} failed (above).")


def import_test(package: Path) -> None:
    """Loads the installed package in a fresh interpreter.

    Raises:
        SystemExit: it does not load; the loader's error has been printed.
    """
    shared_objects = [package / "lib" / "libhorovod_core.so", package / "tensorflow" / "_tf_ops.so"]
    # -I: only the venv's own packages, whatever PYTHONPATH says.
    command = [sys.executable, "-I", "-c", IMPORT_TEST, *map(str, shared_objects)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(
            f"{done.stderr}\n[build] error: the installed package does not load; the loader's own "
            "words are above.\n[build]        An undefined symbol means that another TensorFlow "
            "was here when it was built: `make build` again, with TF=... as for the venv."
        )


def install(stage: Path, venv: Path) -> None:
    """Brings the venv's copy of the package up to date with `stage`.

    The import test takes seconds, most of them TensorFlow's, so an edit of Python alone goes
    without it.

    Args:
        stage: what tools/stage.py wrote.
        venv: the venv's folder; two stamps in it say what was installed and what was seen to load.
    """
    files = [path for path in stage.rglob("*") if path.is_file()]
    everything = digest(files, stage)
    shared_objects = digest([path for path in files if path.suffix == ".so"], stage)
    installed, loaded = venv / ".horovod-installed.sha256", venv / ".horovod-loaded.sha256"
    if not is_current(installed, everything):
        print(f"[build] installing horovod into {venv}", flush=True)
        installed.unlink(missing_ok=True)
        pip(
            *("install", "--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir"),
            *("--force-reinstall", str(stage)),
        )
        installed.write_text(everything)
    if not is_current(loaded, shared_objects):
        loaded.unlink(missing_ok=True)
        import_test(next(venv.glob("lib/python3*/site-packages/horovod")))
        loaded.write_text(shared_objects)
    print(f"[build] {venv} has the package as built")


def main() -> None:
    """Runs install() on the command line's two folders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", type=Path)
    parser.add_argument("venv", type=Path)
    args = parser.parse_args()
    install(args.stage, args.venv)


if __name__ == "__main__":
    main()
