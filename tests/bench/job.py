"""A system at work: N ranks that were started once, and do one measurement after the other.

Threads: one uses a job.  Errors: BenchError, with the end of what the ranks have printed.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench import processes, rank_place
from tests.bench.cases import Case
from tests.bench.channel import SOCKET, SPAWNED_S, Channel
from tests.bench.rank_backend import PARTS
from tests.bench.systems import ROOT, System

__all__ = ["BenchError", "Job"]

_MARK = "BENCH_JOB"
_START_S = 180.0  # eight imports of TensorFlow on two busy cores
_ANSWER_S = 120.0  # beyond what a measurement is planned to take
_OTHERS_MAY_ANSWER_S = 10.0  # after one rank's error
_END_S = 15.0
_STACKS_S = 0.5
_POLL_S = 0.02
_TAIL_CHARS = 4000

_FIRST_ITERATIONS = 3
_WARM_SHARE = 0.2  # of the seconds of a turn; after a stop the caches are cold
_LEAST_ITERATIONS, _MOST_ITERATIONS = 3, 100_000

# What the caller's environment says about these would hold for one system and not for another.
_NOT_INHERITED = ("HOROVOD_", "OMPI_", "PMI_", "PMIX_", "PRTE_", "TF_", "OMP_", "GLOO_", "BENCH_")
_FOR_ALL = {
    "PYTHONUNBUFFERED": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # Of NumPy and torch; TensorFlow has pools of its own, as large as the machine, in every system.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class BenchError(Exception):
    """A wrong result, a rank that died or does not answer in time; with the end of the output."""


class Job:
    """Starts all ranks of a system, and returns when all have done their first op.

    Args:
      system: what to start.
      size: number of ranks, >= 1.
      folder: for its output; it must exist.

    Attributes:
      first_op_s: seconds from the command to the end of the first op, of the slowest rank.
      init_s: of which joining the other ranks took, of the slowest rank.

    Raises:
      BenchError: a rank died, or is not there in time.  Nothing is left of the job then.
    """

    first_op_s: float
    init_s: float

    def __init__(self, system: System, size: int, folder: Path) -> None:
        self._system = system
        self._size = size
        self._output = folder / f"{system.name}.{size}.log"
        self._mark = f"{_MARK}={os.urandom(16).hex()}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        self._pids: list[int] = []
        self._broken = ""  # why it is of no more use
        self._paused = False
        self._prepared = ""  # the name of a case
        self._can: dict[str, bool] = {}
        self._pace_s: dict[tuple[str, str], float] = {}  # seconds per iteration so far
        self._started_bytes: dict[str, int] = {}
        self._stack = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def usable(self) -> bool:
        """Whether it can go on: after a wrong result yes, without one of its ranks not."""
        return not self._broken

    @property
    def pids(self) -> list[int]:
        """The process ids of the ranks, in rank order."""
        return list(self._pids)

    def can(self, case: Case) -> bool:
        """Whether the system has what the case needs.

        Raises:
          BenchError: a rank died or does not answer.
        """
        if case.name not in self._can:
            self._can[case.name] = all(self._ask("can", case=case.name))
        return self._can[case.name]

    def measure(self, case: Case, part: str, seconds: float) -> float:
        """Runs one part of a case for about `seconds`, its results checked before and after.

        Args:
          case: one that it `can`.
          part: "gross": over all ranks; "baseline": without an exchange.
          seconds: of timed iterations; at least three are made.

        Returns:
          Seconds per iteration: the median of each rank, of which the slowest rank's.

        Raises:
          BenchError: a wrong result; or a rank died or does not answer.
        """
        if part not in PARTS:
            raise ValueError(f"no part {part!r} of a case; there are: {', '.join(PARTS)}")
        if self._prepared != case.name:
            self._prepared = ""
            self._ask("prepare", case=case.name)
            self._prepared = case.name
        self._ask("check", part=part)
        if (case.name, part) not in self._pace_s:
            for _ in range(2):  # only the second says something of the pace
                self._run(part, _FIRST_ITERATIONS)
        self._run(part, self._iterations(part, _WARM_SHARE * seconds))
        measured_s = self._run(part, self._iterations(part, seconds))
        self._ask("check", part=part)
        return measured_s

    def idle(self, seconds: float) -> tuple[float, float]:
        """Watches the ranks do nothing for `seconds`.

        Returns:
          CPU seconds and context switches of one rank, all its threads: the mean over the ranks.

        Raises:
          BenchError: a rank died.
        """
        self._must_run()
        before = [self._look(processes.cpu_and_switches, pid) for pid in self._pids]
        time.sleep(seconds)
        after = [self._look(processes.cpu_and_switches, pid) for pid in self._pids]
        self._must_run()
        cpu_s = statistics.fmean(b[0] - a[0] for a, b in zip(before, after))
        switches = statistics.fmean(b[1] - a[1] for a, b in zip(before, after))
        return cpu_s, switches

    def memory(self) -> dict[str, int]:
        """Returns bytes per rank, of the largest: "before init", "after init" and "now".

        Proportional set sizes: what ranks share counts by its share.

        Raises:
          BenchError: a rank died.
        """
        now = max(self._look(processes.memory_bytes, pid) for pid in self._pids)
        return {**self._started_bytes, "now": now}

    def pause(self) -> None:
        """Stops all ranks; returns once no thread of them runs.

        Raises:
          BenchError: one did not stop.
        """
        self._paused = True
        if moving := processes.stop(self._pids):
            raise self._failure(f"processes {moving} did not stop at SIGSTOP, or have ended")

    def resume(self) -> None:
        """Lets all ranks go on."""
        self._paused = False
        processes.wake(self._pids)

    def close(self) -> None:
        """Ends the ranks: in order if they can, else by force.  Nothing of them is left.

        Raises:
          BenchError: a process could not be killed.
        """
        with contextlib.suppress(BenchError):
            if self._channels and not self._broken:
                self.resume()
                self._ask("end", timeout_s=_END_S)
                self._wait_for_processes()
        self._stack.close()

    def _start(self) -> None:
        socket_folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        listener = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        path = str(Path(socket_folder) / "driver")  # short: such a path has 107 characters at most
        listener.bind(path)
        listener.listen(self._size)
        self._start_guard()
        self._spawn(path)
        deadline_s = time.monotonic() + _START_S
        for _ in range(self._size):
            self._accept(listener, deadline_s)
        answers = self._gather("the start", deadline_s)
        places = sorted((answer["rank"], answer["size"]) for answer in answers)
        if places != [(rank, self._size) for rank in range(self._size)]:
            raise self._failure(f"ranks and sizes are {places}, not those of {self._size} ranks")
        self._sort_by_rank([answer["rank"] for answer in answers])
        self.first_op_s = max(answer["first_op_s"] for answer in answers)
        self.init_s = max(answer["init_s"] for answer in answers)
        self._started_bytes = {
            moment: max(answer["memory"][moment] for answer in answers)
            for moment in ("before init", "after init")
        }

    def _start_guard(self) -> None:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", processes.__file__, self._mark],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

        def dismiss() -> None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()  # it has a deadline of its own

        self._stack.callback(dismiss)
        self._stack.callback(self._end)  # before it

    def _spawn(self, socket_path: str) -> None:
        exported = {
            **_FOR_ALL,
            **self._system.variables,
            "PYTHONPATH": str(ROOT),
            rank_place.SIZE: str(self._size),
            SOCKET: socket_path,
            SPAWNED_S: repr(time.monotonic()),
            **dict([self._mark.split("=")]),
        }
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
        environment = {**inherited, **exported}
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
            raise self._failure(f"{command[0]} does not start: {error}") from error
        self._processes.append(process)

    def _accept(self, listener: socket.socket, deadline_s: float) -> None:
        while time.monotonic() < deadline_s:
            if select.select([listener], [], [], _POLL_S)[0]:
                self._channels.append(Channel(listener.accept()[0]))
                self._pids.append(int(self._receive(self._channels[-1])["pid"]))
                return
            if ended := [p.returncode for p in self._processes if p.poll() is not None]:
                raise self._failure(
                    f"a process ended with status {ended[0]} before all ranks were there"
                )
        raise self._failure(
            f"{len(self._channels)} of {self._size} ranks have come within {_START_S:g} s"
        )

    def _sort_by_rank(self, ranks: list[int]) -> None:
        order = sorted(range(self._size), key=ranks.__getitem__)
        self._channels = [self._channels[at] for at in order]
        self._pids = [self._pids[at] for at in order]

    def _run(self, part: str, count: int) -> float:
        """Runs the case at hand; returns the slowest rank's median, and keeps the mean in mind."""
        pace_s = self._pace_s.get((self._prepared, part), 0.0)
        timeout_s = _ANSWER_S + 3 * count * pace_s
        times = self._ask("run", timeout_s=timeout_s, part=part, count=count)
        self._pace_s[self._prepared, part] = max(time["mean_s"] for time in times)
        return float(max(time["median_s"] for time in times))

    def _iterations(self, part: str, seconds: float) -> int:
        # By the mean: on a busy machine it is far more than the median.
        count = round(seconds / max(self._pace_s[self._prepared, part], 1e-9))
        return max(_LEAST_ITERATIONS, min(_MOST_ITERATIONS, count))

    def _ask(self, name: str, timeout_s: float = _ANSWER_S, **arguments: Any) -> list[Any]:
        """Gives all ranks a command, and returns their answers in rank order."""
        self._must_run()
        deadline_s = time.monotonic() + timeout_s
        for channel in self._channels:
            try:
                channel.send({"do": name, **arguments})
            except OSError as error:
                raise self._failure(f"a rank is gone: {error}") from error
        details = "".join(f" {value}" for value in arguments.values())
        return self._gather(f"{name!r}{details}", deadline_s)

    def _gather(self, what: str, deadline_s: float) -> list[Any]:
        """Returns an answer of each channel, in their order."""
        answers: dict[int, dict[str, Any]] = {}
        left = {channel.fileno(): at for at, channel in enumerate(self._channels)}
        while left and (timeout_s := deadline_s - time.monotonic()) > 0:
            for descriptor in select.select(list(left), [], [], timeout_s)[0]:
                at = left.pop(descriptor)
                answers[at] = self._receive(self._channels[at])
                if "error" in answers[at]:  # the others may wait for this one for ever
                    deadline_s = min(deadline_s, time.monotonic() + _OTHERS_MAY_ANSWER_S)
        errors = [answer["error"] for answer in answers.values() if "error" in answer]
        if left:
            silent = [self._pids[at] for at in left.values()]
            processes_text = f"processes {silent} of {self._size} ranks have not answered {what}"
            self._print_stacks(silent)
            raise self._failure("\n".join([processes_text, *errors]))
        if errors:  # all have answered, so the job can go on
            raise BenchError(self._text(f"{what}: {len(errors)} ranks failed\n{errors[0]}"))
        return [answers[at]["ok"] for at in range(self._size)]

    def _receive(self, channel: Channel) -> dict[str, Any]:
        try:
            message = channel.receive()
        except OSError as error:
            raise self._failure(f"a rank is cut off in mid-sentence: {error}") from error
        if message is None:
            raise self._failure(f"a rank has died{self._how_it_ended()}")
        return message

    def _how_it_ended(self) -> str:
        """What the launcher, or the rank itself, ended with; its end may follow the rank's."""
        deadline_s = time.monotonic() + 1.0
        while time.monotonic() < deadline_s:
            if ended := [p.returncode for p in self._processes if p.poll() is not None]:
                return f"; the status is {ended[0]}"
            time.sleep(_POLL_S)
        return ""

    def _look(self, reader: Any, pid: int) -> Any:
        try:
            return reader(pid)
        except OSError as error:
            raise self._failure(f"process {pid} cannot be looked at: {error}") from error

    def _must_run(self) -> None:
        if self._broken:
            raise BenchError(f"{self._system.name}: the job was given up before: {self._broken}")
        if self._paused:
            raise RuntimeError(f"{self._system.name}: the ranks are stopped; call resume() first")

    def _failure(self, what: str) -> BenchError:
        self._broken = what.splitlines()[0]
        return BenchError(self._text(what))

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
        left = processes.end_marked(self._mark)
        for channel in self._channels:
            channel.close()
        if left:
            raise BenchError(f"{self._system.name}: processes {left} live after SIGKILL")
        for process in self._processes:
            process.wait()
