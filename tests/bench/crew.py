"""The processes of a job: N ranks of a system, what they are told, and their end.

Threads: one uses a crew.  Errors: BenchError, with the end of what the ranks have printed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import inherited, processes, rank_place
from tests.bench.channel import SOCKET, SPAWNED_S, Channel
from tests.bench.errors import BenchError, WrongResult
from tests.bench.systems import ROOT, System

__all__ = ["Crew"]

_MARK = "BENCH_JOB"
_START_S = 180.0  # eight imports of TensorFlow on two busy cores
_OTHERS_MAY_ANSWER_S = 10.0  # after one rank's error
_STATUS_MAY_COME_S = 1.0  # a launcher ends after its rank
_END_S = 15.0
_STACKS_S = 0.5
_POLL_S = 0.02
_TAIL_CHARS = 4000

_FOR_ALL = {
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # Of NumPy and torch; TensorFlow has pools of its own, as large as the machine, in every system.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Crew:
    """Starts all ranks, and returns when all have done their first op.

    Args:
      system: what to start.
      size: number of ranks, >= 1.
      folder: for its output; it must exist.

    Attributes:
      broken: why no command can be given any more; "" while all is well.
      pids: of the ranks, in rank order.
      started: what each rank has said of its start; see `rank_main`.

    Raises:
      BenchError: a rank died, or is not there in time.  Nothing is left of them then.
    """

    def __init__(self, system: System, size: int, folder: Path) -> None:
        self.broken = ""
        self.pids: list[int] = []
        self.started: list[dict[str, Any]] = []
        self._system = system
        self._size = size
        self._output = folder / f"{system.name}.{size}.log"
        self._mark = os.urandom(16).hex()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        self._stack = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def ask(self, name: str, timeout_s: float, **arguments: Any) -> list[Any]:
        """Gives all ranks a command.

        Args:
          name: of the command; see `rank_main`.
          timeout_s: until when all must have answered.
          **arguments: of the command.

        Returns:
          Their answers, in rank order.

        Raises:
          WrongResult: a rank has found one.
          BenchError: a rank failed at it; or one died or did not answer, then `broken` is set.
        """
        if self.broken:
            raise BenchError(f"{self._system.name}: the job was given up before: {self.broken}")
        deadline_s = time.monotonic() + timeout_s
        for channel in self._channels:
            try:
                channel.send({"do": name, **arguments})
            except OSError as error:
                raise self.failure(f"a rank is gone: {error}") from error
        details = "".join(f" {value}" for value in arguments.values())
        return self._gather(f"{name!r}{details}", deadline_s)

    def failure(self, what: str, kind: type[BenchError] = BenchError) -> BenchError:
        """Gives the crew up; returns the error to raise."""
        self.broken = what.splitlines()[0]
        return kind(self._text(what))

    def close(self) -> None:
        """Ends the ranks: in order if they can, else by force.  Nothing of them is left.

        REQUIRES: they are not stopped, or `broken` is set.

        Raises:
          BenchError: a process could not be killed.
        """
        if not self.broken:
            with contextlib.suppress(BenchError):
                self.ask("end", _END_S)
                self._wait_for_processes()
        self._stack.close()

    def _start(self) -> None:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        path = Path(folder) / "driver"  # short: such a path has 107 characters at most
        listener.bind(str(path))
        listener.listen(self._size)
        self._start_guard()
        self._spawn(path)
        deadline_s = time.monotonic() + _START_S
        for _ in range(self._size):
            self._accept(listener, deadline_s)
        answers = self._gather("the start", deadline_s)
        places = sorted((answer["rank"], answer["size"]) for answer in answers)
        if places != [(rank, self._size) for rank in range(self._size)]:
            raise self.failure(f"ranks and sizes are {places}, not those of {self._size} ranks")
        self._sort_by_rank([answer["rank"] for answer in answers])
        self.started = answers

    def _start_guard(self) -> None:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", processes.__file__, f"{_MARK}={self._mark}"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

        def dismiss() -> None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()  # it has a deadline of its own

        self._stack.callback(dismiss)
        self._stack.callback(self._end)  # before it

    def _spawn(self, socket_path: Path) -> None:
        exported = {
            **_FOR_ALL,
            **self._system.variables,
            "PYTHONPATH": str(ROOT),
            rank_place.SIZE: str(self._size),
            SOCKET: str(socket_path),
            # So that what a rank leaves there when it is killed goes with the folder.
            "TMPDIR": str(socket_path.parent),
            SPAWNED_S: repr(time.monotonic()),
            _MARK: self._mark,
        }
        environment = {**inherited.environment(), **exported}
        command = self._system.command(self._size, exported)
        with self._output.open("wb") as output:
            if self._system.launcher:
                self._popen(command, environment, output)
                return
            addresses = rank_place.free_addresses(self._size)
            for rank in range(self._size):
                here = rank_place.variables(rank, addresses)
                self._popen(command, {**environment, **here}, output)

    def _popen(self, command: list[str], environment: Mapping[str, str], output: Any) -> None:
        try:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the driver
            )
        except OSError as error:
            raise self.failure(f"{command[0]} does not start: {error}") from error
        self._processes.append(process)

    def _accept(self, listener: socket.socket, deadline_s: float) -> None:
        while time.monotonic() < deadline_s:
            if select.select([listener], [], [], _POLL_S)[0]:
                self._channels.append(Channel(listener.accept()[0]))
                self.pids.append(int(self._receive(self._channels[-1])["pid"]))
                return
            if ended := [p.returncode for p in self._processes if p.poll() is not None]:
                raise self.failure(
                    f"a process ended with status {ended[0]} before all ranks were there"
                )
        raise self.failure(
            f"{len(self._channels)} of {self._size} ranks have come within {_START_S:g} s"
        )

    def _sort_by_rank(self, ranks: list[int]) -> None:
        order = sorted(range(self._size), key=ranks.__getitem__)
        self._channels = [self._channels[at] for at in order]
        self.pids = [self.pids[at] for at in order]

    def _gather(self, what: str, deadline_s: float) -> list[Any]:
        """Returns an answer of each channel, in their order."""
        answers: dict[int, dict[str, Any]] = {}
        left = {channel.fileno(): at for at, channel in enumerate(self._channels)}
        while left and (timeout_s := deadline_s - time.monotonic()) > 0:
            for descriptor in select.select(list(left), [], [], timeout_s)[0]:
                at = left.pop(descriptor)
                answers[at] = self._receive(self._channels[at])
                if "ok" not in answers[at]:  # the others may wait for this one for ever
                    deadline_s = min(deadline_s, time.monotonic() + _OTHERS_MAY_ANSWER_S)
        wrong = [answer["wrong"] for answer in answers.values() if "wrong" in answer]
        # A wrong result first: what fails beside it may follow from it.
        errors = wrong + [answer["error"] for answer in answers.values() if "error" in answer]
        kind = WrongResult if wrong else BenchError
        if left:
            silent = [self.pids[at] for at in left.values()]
            processes_text = f"processes {silent} of {self._size} ranks have not answered {what}"
            self._print_stacks(silent)
            raise self.failure("\n".join([processes_text, *errors]), kind)
        if errors:  # all have answered, so the job can go on
            raise kind(self._text(f"{what}: {len(errors)} ranks failed\n{errors[0]}"))
        return [answers[at]["ok"] for at in range(self._size)]

    def _receive(self, channel: Channel) -> dict[str, Any]:
        try:
            message = channel.receive()
        except OSError as error:
            raise self.failure(f"a rank is cut off in mid-sentence: {error}") from error
        if message is None:
            raise self.failure(f"a rank has died{self._how_it_ended()}")
        return message

    def _how_it_ended(self) -> str:
        """What the launcher, or the rank itself, ended with; its end may follow the rank's."""
        deadline_s = time.monotonic() + _STATUS_MAY_COME_S
        while time.monotonic() < deadline_s:
            if ended := [p.returncode for p in self._processes if p.poll() is not None]:
                return f"; the status is {ended[0]}"
            time.sleep(_POLL_S)
        return ""

    def _text(self, what: str) -> str:
        try:
            output = self._output.read_text(errors="replace")[-_TAIL_CHARS:]
        except OSError:  # it came to no output
            output = ""
        who = f"{self._system.name}, {self._size} ranks"
        return f"{who}: {what}\n--- the end of {self._output}\n{output}"

    def _print_stacks(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(_STACKS_S)

    def _wait_for_processes(self) -> None:
        deadline_s = time.monotonic() + _END_S
        while time.monotonic() < deadline_s and any(p.poll() is None for p in self._processes):
            time.sleep(_POLL_S)

    def _end(self) -> None:
        left = processes.end_marked(f"{_MARK}={self._mark}")
        for channel in self._channels:
            channel.close()
        if left:
            raise BenchError(f"{self._system.name}: processes {left} live after SIGKILL")
        for process in self._processes:
            process.wait()
