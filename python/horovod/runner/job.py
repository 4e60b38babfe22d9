"""Runs the ranks of a job on this host, from the first start to the last process gone.

How a job ends:
  all ranks exit 0       what they left running is ended; the exit code is 0.
  one rank fails         the others have _GRACE_S to say what they lost and exit; then SIGTERM, then
                         SIGKILL.  The first failing rank decides the exit code and is named last.
  a signal comes         it goes to every process of the job; then SIGTERM, then SIGKILL.  A second
                         one skips the waiting.
  the launcher is killed the watchdog ends the job (reaper.py).

Threads: all of this runs in the main thread, in one event loop; the writers of console.py have
threads of their own.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from horovod.runner.console import Console
from horovod.runner.rank_process import RankProcess
from horovod.runner.reaper import members, send_signal
from horovod.runner.report import describe_status, exit_code, list_statuses, signal_name
from horovod.runner.signals import SignalPipe
from horovod.runner.watchdog import Watchdog

__all__ = ["Job", "JobSpec"]

# Together below the 5 s within which a failed rank ends the job.
_GRACE_S = 2.5
_AFTER_SIGNAL_S = 3.0
_AFTER_TERM_S = 1.5
_AFTER_KILL_S = 3.0
_LOOK_EVERY_S = 0.05
_SILENT_S = 1.0  # a pipe that someone outside the job holds open is given up after this
_FLUSH_AFTER_SIGNAL_S = 1.0

_CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class JobSpec:
    """What to run.

    Attributes:
      command: program and arguments, the same for each rank.
      environments: the whole environment of each rank; its length is the number of ranks.
      job_id: hex digits that each environment holds.
      output_dir: where copies of the output go; None for none.
      timestamps: whether each printed line begins with the time of day.
      verbose: whether the launcher says what it does.
    """

    command: Sequence[str]
    environments: Sequence[Mapping[str, str]]
    job_id: str
    output_dir: str | None = None
    timestamps: bool = False
    verbose: bool = False


class Job:
    """One run of a JobSpec.  REQUIRES: the main thread, for the signals' sake.

    Args:
      spec: what to run.
      rank_ended: called once for each rank that ended by itself, with its number, process id and
        status (the exit code, or minus the signal); from the event loop, so it must not wait.
    """

    def __init__(self, spec: JobSpec, rank_ended: Callable[[int, int, int], None]) -> None:
        self._spec = spec
        self._rank_ended = rank_ended
        self._ranks: list[RankProcess] = []
        self._failed: RankProcess | None = None  # the first one
        self._seen: dict[int, int] = {}  # processes of the job, as members() remembers them
        self._told_to_end: set[int] = set()  # ranks that the launcher signalled
        self._caught: list[int] = []  # signals to the launcher, oldest first
        self._start_s = self._failed_s = time.monotonic()

    def run(self) -> int:
        """Starts the ranks and waits until nothing of them is left.

        Returns:
          The exit code for the launcher: the first failing rank's, or 128 + signal, or 0; or 1 when
          the ranks ended well but what they printed could not be written.

        Raises:
          OSError: a rank could not be started; those before it have been ended.
        """
        signums = [signal.SIGCHLD, *_CAUGHT]
        if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
            signums.remove(signal.SIGHUP)  # nohup
        with contextlib.ExitStack() as stack:
            self._signals = stack.enter_context(SignalPipe(signums))
            self._selector = stack.enter_context(selectors.DefaultSelector())
            self._selector.register(self._signals, selectors.EVENT_READ, self._on_signals)
            self._console = Console(
                self._selector,
                timestamps=self._spec.timestamps,
                output_dir=self._spec.output_dir,
                size=len(self._spec.environments),
            )
            stack.callback(self._console.close)
            self._watchdog = Watchdog(self._spec.job_id)
            stack.callback(self._watchdog.close)
            stack.callback(self._reap)
            stack.callback(self._end_leftovers)  # before _reap: the ids must still be ours
            self._start_ranks()
            self._wait_until(lambda: self._all_ended() or self._failed or self._caught)
            self._end_ranks()
            self._end_leftovers()
            self._drain()
            return self._report()

    def _start_ranks(self) -> None:
        for rank, environment in enumerate(self._spec.environments):
            process = RankProcess(rank, self._spec.command, environment)
            self._ranks.append(process)
            self._watchdog.add_session(process.pid)
            self._console.add_rank(rank, process.stdout, process.stderr)
            self._explain(f"rank {rank} is process {process.pid}")
        self._look_at_ranks()  # one may have ended before SIGCHLD was caught

    def _end_ranks(self) -> None:
        """Ends the ranks, if not all have ended: asks first, and gives each step its time."""
        if self._all_ended():
            return
        if not self._caught:  # a rank failed
            self._wait_until(lambda: self._all_ended() or self._caught, _GRACE_S)
        if self._caught and not self._all_ended():
            signum = self._caught[0]
            self._explain(f"{signal_name(signum)}: ends the ranks")
            self._signal_all(signum)
            wait_s = _AFTER_SIGNAL_S
            self._wait_until(lambda: self._all_ended() or len(self._caught) > 1, wait_s)
        if len(self._caught) < 2 and not self._all_ended():
            self._signal_all(signal.SIGTERM)
            self._wait_until(lambda: self._all_ended() or len(self._caught) > 1, _AFTER_TERM_S)

    def _end_leftovers(self) -> None:
        """Kills what is left of the job: ranks that did not listen, and what ranks left behind."""
        left = self._members()
        if not left:
            return
        if self._all_ended() and not self._caught:
            self._explain(f"the ranks left {len(left)} processes running; ends them: {left}")
            self._signal_all(signal.SIGTERM)
            self._wait_gone(_AFTER_TERM_S)
        deadline_s = time.monotonic() + _AFTER_KILL_S
        while self._members() and time.monotonic() < deadline_s:
            self._signal_all(signal.SIGKILL)
            self._wait_gone(_LOOK_EVERY_S)

    def _wait_gone(self, timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        while self._members() and time.monotonic() < deadline_s:
            self._wait_until(lambda: False, _LOOK_EVERY_S)
        self._look_at_ranks()

    def _drain(self) -> None:
        """Reads what the ranks have written to the last byte."""
        read = -1
        while not self._console.drained:
            if self._console.bytes_read == read and not self._console.stuck:
                break
            if self._console.stuck and self._caught:
                break
            read = self._console.bytes_read
            self._wait_until(lambda: self._console.drained, _SILENT_S)
        self._console.close_streams()
        self._flush()

    def _flush(self) -> None:
        # Without a signal it waits for a slow reader as long as it takes: nothing is lost.
        caught = len(self._caught)
        self._wait_until(
            lambda: self._console.flushed or len(self._caught) > caught,
            _FLUSH_AFTER_SIGNAL_S if caught else None,
        )

    def _report(self) -> int:
        """Says how the job ended; the reason comes last."""
        statuses = {process.rank: process.status for process in self._ranks}
        code = 0
        if any(status != 0 for status in statuses.values()) or self._caught:
            self._console.say(list_statuses(statuses, sorted(self._told_to_end)))
        if self._failed is not None and self._failed.status is not None:
            code = exit_code(self._failed.status)
            self._console.say(
                f"rank {self._failed.rank} failed first: {describe_status(self._failed.status)}, "
                f"{self._failed_s - self._start_s:.1f} s after the start"
            )
        elif self._caught:
            code = 128 + self._caught[0]
            self._console.say(f"ended by {signal_name(self._caught[0])}")
        if self._console.fault:
            code = code or 1
            self._console.say(self._console.fault)
        self._flush()
        return code

    def _wait_until(self, condition: Callable[[], object], timeout_s: float | None = None) -> None:
        """Runs the event loop until `condition` holds or the time is over."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not condition():
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            for key, _ in self._selector.select(left_s):
                key.data()

    def _on_signals(self) -> None:
        for signum in self._signals.take():
            if signum != signal.SIGCHLD:
                self._caught.append(signum)
        self._look_at_ranks()

    def _look_at_ranks(self) -> None:
        ended = [process for process in self._ranks if process.look()]
        for process in ended:
            assert process.status is not None
            self._explain(f"rank {process.rank}: {describe_status(process.status)}")
            if not self._caught and process.rank not in self._told_to_end:
                self._rank_ended(process.rank, process.pid, process.status)
        failed = [process for process in ended if process.status != 0]
        if failed and self._failed is None and not self._caught:
            # Of two seen at once, the one that was killed is the cause: a rank that exits because
            # it lost another does so by itself.
            self._failed = min(failed, key=lambda process: (process.status or 0) >= 0)
            self._failed_s = time.monotonic()

    def _reap(self) -> None:
        for process in self._ranks:
            process.reap()

    def _all_ended(self) -> bool:
        return all(process.status is not None for process in self._ranks)

    def _members(self) -> list[int]:
        sessions = {process.pid for process in self._ranks}
        return members(sessions, self._spec.job_id.encode(), self._seen)

    def _signal_all(self, signum: int) -> None:
        self._told_to_end.update(p.rank for p in self._ranks if p.status is None)
        send_signal(self._members(), signum)

    def _explain(self, text: str) -> None:
        if self._spec.verbose:
            self._console.say(text)
