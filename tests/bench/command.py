"""Runs a command to its end."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from tests.bench.errors import BenchError

__all__ = ["output_of"]

_TAIL_CHARS = 2000


def output_of(command: Sequence[str], timeout_s: float) -> str:
    """Returns what a command printed to its standard output.

    Raises:
      BenchError: it could not be started, failed, with the end of all that it said, or ran longer
        than `timeout_s` and was killed.
    """
    line = " ".join(command)
    try:
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except OSError as error:
        raise BenchError(f"{line}: does not start: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{line}: still running after {timeout_s:g} s") from error
    if ended.returncode != 0:
        said = (ended.stdout + ended.stderr).strip()[-_TAIL_CHARS:]
        raise BenchError(f"{line}: exit status {ended.returncode}: {said}")
    return ended.stdout
