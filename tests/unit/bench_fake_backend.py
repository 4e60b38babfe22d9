"""A backend of the benchmark's rank program without a framework, which can be made to go wrong.

Its allreduce goes through no wire: each rank knows what the others have.  FAKE_FAULT in a rank's
environment says what rank 1 does: "wrong", "die", "hang", "raise" (in every gross iteration); "die
at init"; "deaf" (it ignores SIGTERM and never ends by itself); "orphan" (it starts a process in a
session of its own).

Or what all ranks do: "wrong, the other hangs" (rank 1 and rank 0, in every gross iteration); "no
memory is told"; and, of 64 MiB, "heap memory", "mapped file", or "shared memory" (each rank its
own).
"""

from __future__ import annotations

import importlib.util
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import processes, rank_values
from tests.bench.cases import Case
from tests.bench.rank_backend import Work
from tests.bench.rank_place import place

__all__ = ["backend"]

_LONG_S = 300.0
_MEMORY_BYTES = 64 << 20
_OF_ALL_RANKS = ("no memory is told", "heap memory", "mapped file", "shared memory")


class _Fake:
    def __init__(self) -> None:
        here = place()
        self.rank, self.size = here.rank, len(here.addresses)
        fault = os.environ.get("FAKE_FAULT", "")
        if fault == "wrong, the other hangs":
            fault = "wrong" if self.rank == 1 else "hang"
        elif self.rank != 1 and fault not in _OF_ALL_RANKS:
            fault = ""
        self.fault = fault
        self.memory: Any = None
        if fault == "no memory is told":
            processes.SMAPS = "no_such_file"

    def init(self) -> tuple[int, int]:
        if self.fault == "die at init":
            print("last words", flush=True)
            sys.exit(7)
        if self.fault == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.fault == "orphan":
            command = [sys.executable, "-c", f"import time; time.sleep({_LONG_S})"]
            subprocess.Popen(command, start_new_session=True)
        if self.fault in _OF_ALL_RANKS:
            self.memory = _memory(self.fault)
        return self.rank, self.size

    def first_op(self) -> None:
        time.sleep(0.01)

    def can(self, case: Case) -> bool:
        return case.mode == "eager"

    def prepare(self, case: Case) -> Work:
        return _FakeWork(self, case)

    def end(self) -> None:
        if self.fault == "deaf":
            time.sleep(_LONG_S)


def backend() -> _Fake:
    return _Fake()


def _memory(kind: str) -> Any:
    """Something of some size, all of it in memory."""
    if kind == "heap memory":
        return b"x" * _MEMORY_BYTES
    if kind == "shared memory":
        shared = mmap.mmap(-1, _MEMORY_BYTES)
        shared.write(b"x" * _MEMORY_BYTES)
        return shared
    if kind == "mapped file":
        found = importlib.util.find_spec("tensorflow")
        assert found is not None and found.submodule_search_locations
        libraries = Path(found.submodule_search_locations[0]).glob("*.so*")
        with max(libraries, key=lambda path: path.stat().st_size).open("rb") as file:
            mapped = mmap.mmap(file.fileno(), _MEMORY_BYTES, access=mmap.ACCESS_READ)
        assert len(mapped[:: mmap.PAGESIZE]) == _MEMORY_BYTES // mmap.PAGESIZE
        return mapped
    return None


class _FakeWork:
    def __init__(self, fake: _Fake, case: Case) -> None:
        self._fake, self._case = fake, case

    def runner(self, part: str) -> Callable[[], object]:
        return lambda: self._run(part)

    def check(self, part: str) -> None:
        got = [self._run(part)]
        rank_values.check(self._case, part, self._fake.rank, self._fake.size, got, 1)

    def close(self) -> None:
        pass

    def _run(self, part: str) -> Any:
        fake = self._fake
        time.sleep(0.001 * (1 + fake.rank))  # so that the slowest rank is known
        total = rank_values.results(self._case, part, fake.rank, fake.size, 0, 1)
        if part == "gross":
            if fake.fault == "wrong":
                total[0] += 1
            if fake.fault == "raise":
                raise RuntimeError("something is missing")
            if fake.fault == "die":
                print("last words", flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            if fake.fault == "hang":
                time.sleep(_LONG_S)
        return total
