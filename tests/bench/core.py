"""Collectives of the core alone: ranks in C++, without a framework and without Python.

The ranks are processes of `tests/bench/cc/core_rank.cc`, linked to the libhorovod_core.so that the
build made; knobs of the caller do not reach them.  Over "shm" and "tcp" it is the data
plane, the control plane and the way there and back through the C API that are timed.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import TracebackType

from tests.bench import inherited
from tests.bench.errors import BenchError, WrongResult
from tests.bench.native import program

__all__ = ["CASES", "CoreCase", "CoreRanks", "case_named", "run"]

_KIB, _MIB = 1 << 10, 1 << 20
_ALLREDUCE, _ALLGATHER, _BROADCAST, _ALLTOALL, _REDUCESCATTER = range(5)  # hvd_kind
_FLOAT16, _BFLOAT16, _FLOAT32 = 7, 8, 9  # hvd_dtype
_START_S = 60.0
_END_S = 30.0
_PATIENCE_S = 60.0  # for one line of an answer, beyond the time that is measured
_TRIAL_ITERATIONS = 3
_LEAST_ITERATIONS, _MOST_ITERATIONS = 5, 100_000
_TAIL_BYTES = 2000


@dataclass(frozen=True)
class CoreCase:
    """One row.

    Attributes:
      name: unique, as in `tests.bench.cases` where that has the same.
      kind: hvd_kind; reductions are sums, a broadcast is from rank 0, an alltoall has an equal part
        for each rank, as far as that is possible.
      dtype: hvd_dtype.
      elements: of each rank's input tensors; in an alltoall and reducescatter one for each rank
        at least.
      tensors: how many, all in flight at once.
    """

    name: str
    kind: int
    dtype: int
    elements: int
    tensors: int = 1


CASES = (
    CoreCase("allreduce 4 B", _ALLREDUCE, _FLOAT32, 1),
    CoreCase("allreduce 64 KiB", _ALLREDUCE, _FLOAT32, 16 * _KIB),
    CoreCase("allreduce 1 MiB", _ALLREDUCE, _FLOAT32, _MIB // 4),
    CoreCase("allreduce 16 MiB", _ALLREDUCE, _FLOAT32, 4 * _MIB),
    CoreCase("allreduce 64 MiB", _ALLREDUCE, _FLOAT32, 16 * _MIB),
    CoreCase("allreduce float16 16 MiB", _ALLREDUCE, _FLOAT16, 8 * _MIB),
    CoreCase("allreduce bfloat16 16 MiB", _ALLREDUCE, _BFLOAT16, 8 * _MIB),
    CoreCase("allreduce 200 x 4 KiB", _ALLREDUCE, _FLOAT32, _KIB, 200),
    CoreCase("allreduce 1000 x 64 B", _ALLREDUCE, _FLOAT32, 16, 1000),
    CoreCase("allgather 1 MiB", _ALLGATHER, _FLOAT32, _MIB // 4),
    CoreCase("allgather 16 MiB", _ALLGATHER, _FLOAT32, 4 * _MIB),
    CoreCase("broadcast 1 MiB", _BROADCAST, _FLOAT32, _MIB // 4),
    CoreCase("broadcast 16 MiB", _BROADCAST, _FLOAT32, 4 * _MIB),
    CoreCase("alltoall 1 MiB", _ALLTOALL, _FLOAT32, _MIB // 4),
    CoreCase("alltoall 16 MiB", _ALLTOALL, _FLOAT32, 4 * _MIB),
    CoreCase("reducescatter 1 MiB", _REDUCESCATTER, _FLOAT32, _MIB // 4),
    CoreCase("reducescatter 16 MiB", _REDUCESCATTER, _FLOAT32, 4 * _MIB),
)


def case_named(name: str) -> CoreCase:
    """Finds a case.

    Raises:
      ValueError: there is none of this name.
    """
    for case in CASES:
        if case.name == name:
            return case
    raise ValueError(f"no core case {name!r}; there are: {', '.join(c.name for c in CASES)}")


def run(
    size: int, transport: str, seconds: float, cases: Collection[str] | None = None
) -> dict[str, float]:
    """Times the cases; every result is checked, before the timing and at its end.

    Args:
      size: ranks, at most 13.
      transport: a value of HOROVOD_TRANSPORT.
      seconds: about how long each case is timed.
      cases: names of the cases, or None for all.

    Returns:
      Seconds per iteration by case: the median, of the slowest rank.

    Raises:
      Unavailable: the program is not built.
      WrongResult: a result was wrong.
      BenchError: a rank failed or did not answer.
      ValueError: there is no such case.
    """
    chosen = CASES if cases is None else [case_named(name) for name in cases]
    results: dict[str, float] = {}
    with CoreRanks(size, transport) as ranks:
        for case in chosen:
            trial_s = ranks.time(case, _TRIAL_ITERATIONS)
            wanted = round(seconds / trial_s)
            results[case.name] = ranks.time(
                case, min(max(wanted, _LEAST_ITERATIONS), _MOST_ITERATIONS)
            )
    return results


class CoreRanks:
    """The ranks of one job, as a context manager; at its end none is left.

    After a BenchError there is nothing to do but to leave it.
    """

    def __init__(
        self,
        size: int,
        transport: str,
        prefix: Callable[[int], Sequence[str]] = lambda rank: (),
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """Starts them; returns when each has found the others.

        Args:
          size: ranks, at most 13.
          transport: a value of HOROVOD_TRANSPORT.
          prefix: of the command of a rank, such as valgrind and its options.
          patience_s: how long one command may take.

        Raises:
          Unavailable: the program is not built.
          BenchError: they did not come together.
        """
        self._patience_s = patience_s
        self._ranks: list[_Rank] = []
        path = str(program("core_rank"))
        environment = {**inherited.environment(), "HOROVOD_TRANSPORT": transport}
        try:
            for rank in range(size):
                command = [*prefix(rank), path, str(rank), str(size)]
                self._ranks.append(_Rank(rank, command, environment))
            deadline_s = time.monotonic() + _START_S
            endpoints = [rank.answer("endpoints", deadline_s) for rank in self._ranks]
            nonce, secret = os.urandom(16).hex(), os.urandom(16).hex()
            for rank_process in self._ranks:
                rank_process.send(" ".join(["start", nonce, secret, *endpoints]))
            for rank_process in self._ranks:
                rank_process.answer("ready", deadline_s)
        except BaseException:
            self._kill()
            raise

    def __enter__(self) -> CoreRanks:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._end()
        finally:
            self._kill()

    @property
    def pids(self) -> list[int]:
        """Of the ranks, in order."""
        return [rank.pid for rank in self._ranks]

    def time(self, case: CoreCase, iterations: int, seeds: Sequence[int] = ()) -> float:
        """Returns the median seconds of `iterations`, of the slowest rank.

          Args:
            case: what to do.
            iterations: >= 1, the same on all ranks.
            seeds: of each rank's inputs, 0 if not given; a check fails unless all are equal.

          Raises:
            WrongResult: a result was wrong.
        BenchError: a rank failed or did not answer.
        """
        answers = self._obey("time", "seconds", case, iterations, seeds)
        return max(float(answer) for answer in answers)

    def repeat(self, case: CoreCase, iterations: int) -> None:
        """Does the same without a clock in the loop.

        Raises:
          WrongResult, BenchError: as `time`.
        """
        self._obey("repeat", "repeated", case, iterations, ())

    def _obey(
        self, command: str, answer: str, case: CoreCase, iterations: int, seeds: Sequence[int]
    ) -> list[str]:
        deadline_s = time.monotonic() + self._patience_s
        for rank in self._ranks:
            seed = seeds[rank.rank] if seeds else 0
            numbers = (case.kind, case.dtype, case.elements, case.tensors, seed, iterations)
            rank.send(f"{command} {' '.join(map(str, numbers))}")
        return [rank.answer(answer, deadline_s) for rank in self._ranks]

    def _end(self) -> None:
        for rank in self._ranks:
            rank.close()
        deadline_s = time.monotonic() + _END_S
        for rank in self._ranks:
            rank.wait(deadline_s)

    def _kill(self) -> None:
        for rank in self._ranks:
            rank.kill()


class _Rank:
    """One process; lines to it and from it."""

    def __init__(self, rank: int, command: Sequence[str], environment: dict[str, str]) -> None:
        self.rank = rank
        self._files = contextlib.ExitStack()
        self._said_fd = os.memfd_create("said")
        self._files.callback(os.close, self._said_fd)
        self._unread = b""
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said_fd,
            bufsize=0,
        )
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            self._files.callback(stream.close)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
        except BrokenPipeError as error:
            raise self._error("it has ended") from error

    def answer(self, wanted: str, deadline_s: float) -> str:
        """Returns what follows the word `wanted` in the next line."""
        word, _, rest = self._line(deadline_s).partition(" ")
        if word == "wrong":
            raise WrongResult(f"core_rank {self.rank}: wrong: {rest}")
        if word != wanted:
            raise self._error(f"{word} {rest}")
        return rest

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self, deadline_s: float) -> None:
        try:
            status = self._process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise self._error(f"it did not end within {_END_S:g} s") from error
        if status != 0:
            raise self._error(f"exit status {status}")

    def kill(self) -> None:
        """Ends it, if it still runs, and forgets it."""
        self._process.kill()
        self._process.wait()
        self._files.close()

    def _line(self, deadline_s: float) -> str:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    raise self._error("it did not answer in time")
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                if not data:
                    raise self._error("it has ended")
                self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def _error(self, what: str) -> BenchError:
        size = os.fstat(self._said_fd).st_size
        said = os.pread(self._said_fd, _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        return BenchError(f"core_rank {self.rank}: {what}\n{said.decode(errors='replace')}".strip())
