"""horovodrun --check-build: what is installed, without loading any of it."""

from __future__ import annotations

from pathlib import Path

import horovod

__all__ = ["describe_build"]


def describe_build(package: Path | None = None) -> str:
    """Lists frameworks, transports and collective operations; [X] marks what is there.

    Args:
      package: the folder of the installed package; default: this one's.

    Returns:
      Lines of text.
    """
    root = package or Path(horovod.__file__).parent
    core = (root / "lib" / "libhorovod_core.so").exists()
    tensorflow = core and (root / "tensorflow" / "_tf_ops.so").exists()
    groups = {
        "Frameworks": {"TensorFlow": tensorflow, "PyTorch": False, "MXNet": False},
        "Controllers": {"MPI": False, "Gloo (built-in, over sockets)": core},
        "Tensor operations": {
            "NCCL": False,
            "MPI": False,
            "Gloo (built-in shared memory and TCP)": core,
        },
    }
    lines = [f"horovod {horovod.__version__}"]
    for title, rows in groups.items():
        lines += ["", f"{title}:"]
        lines += [f"    [{'X' if there else ' '}] {name}" for name, there in rows.items()]
    return "\n".join(lines)
