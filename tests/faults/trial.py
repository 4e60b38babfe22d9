"""One job of a few ranks, with one fault: starts it, does the fault, waits, and looks what is left.

Threads: trials may run side by side, one thread each.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from horovod.runner.environment import rank_environment
from horovod.runner.reaper import members, send_signal
from horovod.runner.rendezvous_server import RendezvousServer
from tests.faults.catalog import Trial
from tests.faults.judge import START_TIMEOUT_S, Observation
from tests.faults.rank_main import FAULT_SIGNAL, STEPS_AFTER, RankSpec
from tests.faults.remains import remains_of_child

__all__ = ["run"]

_POLL_S = 0.01
_START_S = 60.0  # imports on a loaded machine
_END_S = 20.0  # beyond every bound: who is not there by then hangs
_STACKS_S = 0.5
_KILL_S = 10.0
_TAIL_CHARS = 3000
# Nobody may raise while a rank is stopped, so this is far more than that takes.
_PATIENT_START_TIMEOUT_S = 60.0


def run(trial: Trial) -> Observation:
    """Runs a trial; whatever happens, nothing of it is left afterwards."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        secret = os.urandom(32)
        server = stack.enter_context(RendezvousServer(secret, trial.size))
        job = _Job(trial, folder, server)
        stack.callback(job.kill_all)
        job.start(secret)
        problem = job.go_through()
        if problem:
            job.print_stacks()
        return job.observation(problem)


class _Job:
    def __init__(self, trial: Trial, folder: Path, server: RendezvousServer) -> None:
        self._trial = trial
        self._server = server
        self._folder = folder
        self._job_id = os.urandom(16).hex()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._fault_s: float | None = None
        self._ended_s: dict[int, float] = {}
        self._left: list[str] = []

    def start(self, secret: bytes) -> None:
        trial = self._trial
        patient = trial.fault.signum == signal.SIGSTOP
        base = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "HOROVOD_TRANSPORT": trial.transport,
            "HOROVOD_START_TIMEOUT_SECONDS": str(
                _PATIENT_START_TIMEOUT_S if patient else START_TIMEOUT_S
            ),
            # NumPy's threads have nothing to do here, and starting them costs time.
            "OPENBLAS_NUM_THREADS": "1",
        }
        for rank in range(trial.size):
            victim = rank == trial.victim and trial.fault.signum is None
            spec = RankSpec(
                report=str(self._report_file(rank)),
                finish=str(self._finish_file),
                fault=trial.fault.name if victim else "",
                rejoins=trial.rejoins,
                gives_up_s=_START_S + 3 * _END_S,
            )
            environment = rank_environment(
                base,
                rank=rank,
                size=trial.size,
                hostname="localhost",
                rendezvous_address=self._server.address,
                secret=secret,
                job_id=self._job_id,
            )
            with self._output_file(rank).open("wb") as output:
                self._processes.append(
                    subprocess.Popen(
                        [
                            sys.executable,
                            "-m",
                            "tests.faults.rank_main",
                            json.dumps(dataclasses.asdict(spec)),
                        ],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )

    def go_through(self) -> str | None:
        """Returns what did not come in time, or None."""
        trial, victim = self._trial, self._trial.victim
        counts_from = "starting" if trial.in_init else "initialized"
        if not self._wait_for_event(victim, counts_from, _START_S):
            return f"rank {victim} did not come to {counts_from!r} (within {_START_S:g} s)"
        moment_s = self._events(victim, counts_from)[0]["at_s"] + trial.delay_s
        time.sleep(max(0.0, moment_s - time.monotonic()))
        self._do_the_fault()
        if self._fault_s is None:  # the victim does it, and says when
            if not self._wait_for_event(victim, "fault", _END_S):
                return f"rank {victim} did not do {trial.fault.name!r} (within {_END_S:g} s)"
            self._fault_s = self._events(victim, "fault")[0]["at_s"]
        if trial.fault.seen_as is None:
            if not self._wait(lambda: self._all_go_on() or bool(self._ended_s), _END_S):
                return f"the ranks did not go on within {_END_S:g} s"
            self._finish_file.touch()
        if not self._wait(self._all_ended, START_TIMEOUT_S + _END_S):
            running = [rank for rank, p in enumerate(self._processes) if p.poll() is None]
            return f"ranks {running} still run {START_TIMEOUT_S + _END_S:g} s after the fault"
        self._look_at_what_is_left()
        return None

    def observation(self, problem: str | None) -> Observation:
        size = self._trial.size
        return Observation(
            trial=self._trial,
            problem=problem,
            fault_s=self._fault_s,
            events=[self._events(rank) for rank in range(size)],
            statuses=[process.poll() for process in self._processes],
            ended_s=dict(self._ended_s),
            left=list(self._left),
            outputs=[
                self._output_file(rank).read_text(errors="replace")[-_TAIL_CHARS:]
                for rank in range(size)
            ],
        )

    def print_stacks(self) -> None:
        """Every rank that still runs writes its stacks to its output."""
        send_signal([p.pid for p in self._processes if p.poll() is None], signal.SIGUSR1)
        time.sleep(_STACKS_S)

    def kill_all(self) -> None:
        running = [process for process in self._processes if process.poll() is None]
        # Of those that have ended, only the job's id is still ours.
        sessions = {process.pid for process in running}
        deadline_s = time.monotonic() + _KILL_S
        while time.monotonic() < deadline_s:
            living = members(sessions, self._job_id.encode())
            if not living:
                break
            send_signal(living, signal.SIGKILL)
            time.sleep(_POLL_S)
        for process in running:
            process.wait()

    def _do_the_fault(self) -> None:
        signum, process = self._trial.fault.signum, self._processes[self._trial.victim]
        if signum is None:
            process.send_signal(FAULT_SIGNAL)  # its own report has the moment
        elif signum == signal.SIGSTOP:
            process.send_signal(signum)
            time.sleep(self._trial.stopped_s)
            self._fault_s = time.monotonic()
            process.send_signal(signal.SIGCONT)
        else:
            self._fault_s = time.monotonic()
            process.send_signal(signum)

    def _all_go_on(self) -> bool:
        assert self._fault_s is not None
        return all(
            sum(event["at_s"] > self._fault_s for event in self._events(rank, "step"))
            >= STEPS_AFTER
            for rank in range(self._trial.size)
        )

    def _all_ended(self) -> bool:
        for rank, process in enumerate(self._processes):
            if rank not in self._ended_s and process.poll() is not None:
                self._ended_s[rank] = time.monotonic()
                self._server.rank_ended(rank, process.pid, process.returncode)  # as horovodrun does
        return len(self._ended_s) == len(self._processes)

    def _look_at_what_is_left(self) -> None:
        """The victim's loader must live, and hold nothing of ours; it is all that may be left."""
        trial = self._trial
        living = members(set(), self._job_id.encode())
        if trial.fault.victim_status is not None:
            # It may have forked one and died before it could tell.
            loaders = [pid for pid in living if _session(pid) == self._processes[trial.victim].pid]
            for event in self._events(trial.victim, "initialized"):
                if event["loader"] not in loaders:
                    self._left.append(f"no loader {event['loader']}: it has ended too early")
            before = self._events(trial.victim, "starting")[0]["descriptors"]
            for pid in loaders:
                left = remains_of_child(pid, before)
                self._left += [f"the victim's loader: {what}" for what in left]
            living = [pid for pid in living if pid not in loaders]
        for pid in living:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                self._left.append(f"process {pid}: {command.decode(errors='replace')}")

    def _wait_for_event(self, rank: int, name: str, timeout_s: float) -> bool:
        """Whether the rank reports the event, rather than ending without it."""
        self._wait(lambda: bool(self._events(rank, name)) or rank in self._ended_s, timeout_s)
        return bool(self._events(rank, name))

    def _wait(self, over: Callable[[], bool], timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while not over():
            if time.monotonic() > deadline_s:
                return False
            self._all_ended()  # notes who ends, and when
            time.sleep(_POLL_S)
        return True

    def _events(self, rank: int, name: str | None = None) -> list[dict[str, Any]]:
        try:
            text = self._report_file(rank).read_text()
        except FileNotFoundError:
            return []
        whole, _, _ = text.rpartition("\n")  # a line may be in the making
        events = [json.loads(line) for line in whole.splitlines()]
        return [event for event in events if name in (None, event["event"])]

    def _report_file(self, rank: int) -> Path:
        return self._folder / f"report{rank}"

    def _output_file(self, rank: int) -> Path:
        return self._folder / f"output{rank}"

    @property
    def _finish_file(self) -> Path:
        return self._folder / "finish"


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
