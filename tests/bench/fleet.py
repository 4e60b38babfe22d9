"""The jobs of all systems, of which at most one is awake.

A job that has lost a rank is ended, and its system is started again for the next turn, a few times;
so is one that did not start.  The case in which a job failed, if only by a wrong result, is not
asked of it again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tests.bench.errors import WrongResult
from tests.bench.parts import JobLike, Parts, SystemLike
from tests.bench.record import Note, Record

__all__ = ["Fleet"]

_T = TypeVar("_T")
_STARTS = 3  # of one system in one fleet, those that fail included


class Fleet:
    """A job for each system, all of the same number of ranks.  To be used in a `with`.

    Notes on what fails go into the record.
    """

    def __init__(
        self, parts: Parts, record: Record, size: int, folder: Path, say: Callable[[str], None]
    ) -> None:
        """
        Args:
          parts: what starts a job.
          record: gets the notes.
          size: ranks of each job.
          folder: for the jobs' output; one below it for each start.
          say: gets a line of progress.
        """
        self.size = size
        self._parts, self._record, self._folder, self._say = parts, record, folder, say
        self._jobs: dict[str, tuple[contextlib.ExitStack, JobLike]] = {}
        self._starts: dict[str, int] = {}
        self._given_up: set[str] = set()
        self._failed: set[tuple[str, str, str]] = set()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in list(self._jobs):
            self.end(name)

    def start(self, system: SystemLike) -> JobLike | None:
        """Starts the system's job and stops it; None if it fails, with a note, or was given up."""
        name = system.name
        if name in self._given_up:
            return None
        number = self._starts[name] = self._starts.get(name, 0) + 1
        folder = self._folder / f"{name}-{self.size}-{number}"
        stack = contextlib.ExitStack()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            job = stack.enter_context(self._parts.start(system, self.size, folder))
            job.pause()
        except Exception as error:
            with contextlib.suppress(Exception):
                stack.close()
            self._note("failed", "", "", name, f"its ranks did not start: {error}")
            self._give_up_at_last(name)
            return None
        self._jobs[name] = stack, job
        return job

    def ask(
        self, system: SystemLike, section: str, case: str, question: Callable[[JobLike], _T]
    ) -> _T | None:
        """Wakes the system's ranks, asks, and stops them again.

        Returns:
          None if there is no answer: with a note if it fails now, without one if it failed before.
        """
        name = system.name
        if (section, case, name) in self._failed:
            return None
        job = self._jobs[name][1] if name in self._jobs else self.start(system)
        if job is None:
            return None
        try:
            job.resume()
            answer = question(job)
            job.pause()
            return answer
        except Exception as error:
            self._failed.add((section, case, name))
            kind = "wrong" if isinstance(error, WrongResult) else "failed"
            self._note(kind, section, case, name, str(error))
            if job.usable and self._pauses(job):
                return None
            self.end(name)
            self._give_up_at_last(name)
            return None

    def gave_up(self, system: SystemLike) -> bool:
        """Whether the system is not started any more."""
        return system.name in self._given_up

    def is_first(self, system: SystemLike) -> bool:
        """Whether the system's job is the one that was started first."""
        return system.name in self._jobs and self._starts[system.name] == 1

    def end(self, name: str) -> None:
        """Ends a system's job; without one it does nothing."""
        stack, _ = self._jobs.pop(name, (None, None))
        if stack is None:
            return
        try:
            stack.close()
        except Exception as error:
            self._note("remark", "", "", name, f"did not end in order: {error}")

    def _give_up_at_last(self, name: str) -> None:
        if self._starts[name] >= _STARTS:
            self._given_up.add(name)
            text = f"given up after it had failed {_STARTS} times"
            self._note("missing", "", "", name, text)

    @staticmethod
    def _pauses(job: JobLike) -> bool:
        with contextlib.suppress(Exception):
            job.pause()
            return True
        return False

    def _note(self, kind: str, section: str, case: str, system: str, text: str) -> None:
        self._record.notes.append(Note(kind, section, case, system, self.size, text))
        self._say(f"{system}{f', {case}' if case else ''}: {text}")
