"""A job of ranks that run program after program, so that its start is paid once."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from tests.harness.pool import Pool
from tests.programs import rank
from tests.programs.judge import complaints
from tests.programs.program import Program

__all__ = ["KNOBS", "Job"]

KNOBS: dict[str, dict[str, str]] = {
    # So small that the tensors of programs are cut into parts and names are forgotten.
    "small": {
        "HOROVOD_STAGING_BYTES": "4096",
        "HOROVOD_FUSION_THRESHOLD": "3000",
        "HOROVOD_CACHE_CAPACITY": "8",
    },
    # What is ready travels together, and names are remembered.
    "default": {},
}
_START_S = 60.0


class Job:
    """`size` ranks over a transport; a context manager.

    Args:
      size: ranks.
      transport: as in HOROVOD_TRANSPORT.
      knobs: a name in KNOBS.
      deadline_s: for each program.
      env: extra environment variables for every rank.
    """

    def __init__(
        self,
        size: int,
        transport: str,
        knobs: str = "small",
        deadline_s: float = 20.0,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._size = size
        self._environment = {**KNOBS[knobs], "HOROVOD_TRANSPORT": transport, **(env or {})}
        self._deadline_s = deadline_s
        self._pool: Pool | None = None

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the ranks.  The next program gets new ones."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def run(self, program: Program) -> list[str]:
        """Runs a program on all ranks.

        Returns:
          A sentence for each thing that was wrong with its results.

        Raises:
          RankFailed: a rank died or did not end in time; the next program gets new ranks.
        """
        try:
            outcomes = self._started().call(_named(rank.run, program.choices), self._deadline_s)
            return complaints(program, outcomes)
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of the ranks, in their order."""
        return self._started().pids

    def rss_bytes(self) -> list[int]:
        """Returns the resident memory of each rank, once it has freed what it does not use."""
        self._started().call(_named(rank.free_memory), self._deadline_s)
        return [_rss_bytes(pid) for pid in self._started().pids]

    def _started(self) -> Pool:
        if self._pool is None:
            self._pool = Pool(self._size, self._environment, lives_on=True)
            self._pool.call(_named(rank.start), _START_S)
        return self._pool


def _named(function: object, *args: object) -> tuple[str, str, tuple[object, ...]]:
    return rank.__name__, function.__name__, args  # type: ignore[attr-defined]


def _rss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        [kib] = [line.split()[1] for line in file if line.startswith("VmRSS:")]
    return int(kib) * 1024
