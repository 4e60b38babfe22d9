"""What is compared: our package, the peer in three configurations, and two others.

To add one: a row of SYSTEMS; and for another framework, a backend module as `rank_backend` says.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.command import output_of
from tests.bench.errors import BenchError

__all__ = ["ROOT", "SYSTEMS", "System", "interpreter", "system_named", "usable"]

ROOT = Path(__file__).absolute().parents[2]

# Where the interpreters are; each may be named by a variable instead.
_VENVS = {
    "ours": ("BENCH_VENV", ".venv"),
    "peer": ("BENCH_PEER_VENV", ".venv-peer"),
    "torch": ("BENCH_TORCH_VENV", ".venv-bench"),
}
_HOW_TO_GET = {
    "ours": "run `make build`",
    "peer": "`make bench` builds the peer; look at what it said",
    "torch": "`make bench` installs it; look at what it said",
}
# Set to 0 they leave these out, be they installed or not.
_LEFT_OUT_BY = {"peer": "BENCH_PEER", "torch": "BENCH_TORCH"}
_CHECK_S = 120.0  # the peer loads TensorFlow to say what it was built with


@dataclass(frozen=True)
class System:
    """One way to train.

    Attributes:
      name: unique and short, e.g. "mpi".
      title: for a table's legend, after the name.
      judged: whether a row's ratio may be taken of it: ours, and the peer's configurations.
      backend: the module that the rank program loads; see `rank_backend`.
      venv: "ours", "peer" or "torch": whose interpreter runs it.
      launcher: "horovodrun" or "mpirun"; "" when the ranks need none.
      flags: for the launcher.
      variables: for every rank.
    """

    name: str
    title: str
    judged: bool
    backend: str
    venv: str
    launcher: str = ""
    flags: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def command(self, size: int, exported: Mapping[str, str]) -> list[str]:
        """Returns what starts all ranks or, without a launcher, one of them.

        Args:
          size: number of ranks.
          exported: the variables that a launcher must hand on.
        """
        rank = [str(interpreter(self.venv)), "-m", "tests.bench.rank_main", self.backend]
        if self.launcher == "horovodrun":
            run = interpreter(self.venv).with_name("horovodrun")
            return [str(run), "-np", str(size), *self.flags, *rank]
        if self.launcher == "mpirun":
            hand_on = [word for name in sorted(exported) for word in ("-x", name)]
            return ["mpirun", "-np", str(size), *self.flags, *hand_on, *rank]
        return rank


_HOROVOD = "tests.bench.rank_horovod"
# As the peer's own launcher calls it, without binding: no system's ranks are bound to CPUs.
_MPIRUN = (
    *("--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--map-by", "slot"),
    *("-mca", "pml", "ob1", "-mca", "btl", "^openib"),
)
_MPI = {"HOROVOD_CONTROLLER": "mpi", "HOROVOD_CPU_OPERATIONS": "mpi"}


def _mpi(name: str, title: str, **more: str) -> System:
    variables = {**_MPI, **more}
    return System(name, title, True, _HOROVOD, "peer", "mpirun", _MPIRUN, variables)


SYSTEMS = (
    System(
        "ours",
        "this tree as it comes: shared memory inside a host, TCP between hosts",
        True,
        _HOROVOD,
        "ours",
        "horovodrun",
    ),
    System(
        "ours-tcp",
        "this tree over TCP, as between hosts",
        False,
        _HOROVOD,
        "ours",
        "horovodrun",
        variables={"HOROVOD_TRANSPORT": "tcp"},
    ),
    System(
        "gloo",
        "Horovod 0.28.1 with Gloo, by its horovodrun",
        True,
        _HOROVOD,
        "peer",
        "horovodrun",
        ("--gloo",),
        # While it is not at its turn it is stopped, which its default of 30 s does not survive.
        {"HOROVOD_GLOO_TIMEOUT_SECONDS": "3600"},
    ),
    _mpi("mpi", "Horovod 0.28.1 with MPI, by mpirun"),
    _mpi(
        "mpi-0.1ms",
        "Horovod 0.28.1 with MPI and HOROVOD_CYCLE_TIME=0.1, which it does not do by itself",
        HOROVOD_CYCLE_TIME="0.1",
    ),
    System(
        "torch",
        "torch.distributed with gloo, one thread, without TensorFlow",
        False,
        "tests.bench.rank_torch",
        "torch",
    ),
    System(
        "tf.distribute",
        "TensorFlow's own collectives over gRPC, RING",
        False,
        "tests.bench.rank_tf_distribute",
        "ours",
        variables={"CUDA_VISIBLE_DEVICES": "-1"},
    ),
)


def system_named(name: str) -> System:
    """Finds a system.

    Raises:
      ValueError: there is none of this name.
    """
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise ValueError(f"no system {name!r}; there are: {', '.join(s.name for s in SYSTEMS)}")


def interpreter(venv: str) -> Path:
    """Returns the path of the Python of "ours", "peer" or "torch", be it there or not."""
    variable, folder = _VENVS[venv]
    return Path(os.environ.get(variable) or ROOT / folder) / "bin" / "python"


def usable(system: System) -> str | None:
    """Returns None, or why the system cannot be measured here and what to do about it."""
    variable = _LEFT_OUT_BY.get(system.venv, "")
    if os.environ.get(variable) == "0":
        return f"left out: {variable}=0"
    python = interpreter(system.venv)
    if not python.exists():
        return f"there is no {python}; {_HOW_TO_GET[system.venv]}"
    if system.launcher == "mpirun" and shutil.which("mpirun") is None:
        return "there is no mpirun; install openmpi-bin"
    if system.venv == "peer":
        return _lacks(python, "MPI" if system.launcher == "mpirun" else "Gloo")
    wanted = {"horovodrun": "horovod", "": "torch" if system.venv == "torch" else "tensorflow"}
    return _cannot_import(python, wanted[system.launcher], _HOW_TO_GET[system.venv])


def _lacks(python: Path, controller: str) -> str | None:
    built = _check_build(python)
    if f"[X] {controller}" in built:
        return None
    words = built.strip().splitlines()[-1:] or ["nothing"]
    return (
        f"the peer in {python.parents[1]} was built without {controller} or does not load: its "
        f"`horovodrun --check-build` says {words[0]!r} last; remove the folder to build it anew"
    )


@functools.cache
def _check_build(python: Path) -> str:
    return _output([str(python.with_name("horovodrun")), "--check-build"])


@functools.cache
def _cannot_import(python: Path, module: str, cure: str) -> str | None:
    look = f"import importlib.util; print('found:', importlib.util.find_spec({module!r}))"
    # Isolated: the folder that this runs in holds packages of its own.
    output = _output([str(python), "-I", "-c", look])
    if "found: ModuleSpec" in output:
        return None
    return f"{python} has no {module}: {cure}"


def _output(command: list[str]) -> str:
    """What it prints; why it could not run, if it could not."""
    try:
        return output_of(command, _CHECK_S)
    except BenchError as error:
        return str(error)
