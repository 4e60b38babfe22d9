"""How the launcher words the way ranks ended.

An exit status is written as Python's subprocess does: the exit code, or minus the signal.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence

__all__ = ["describe_status", "exit_code", "list_statuses", "other_python", "signal_name"]


def signal_name(signum: int) -> str:
    """Returns e.g. "SIGKILL", or "signal 40" for one without a name."""
    try:
        return signal.Signals(signum).name
    except ValueError:
        return f"signal {signum}"


def describe_status(status: int) -> str:
    """Returns e.g. "exit code 3" or "killed by SIGKILL (signal 9)"."""
    if status >= 0:
        return f"exit code {status}"
    return f"killed by {signal_name(-status)} (signal {-status})"


def exit_code(status: int) -> int:
    """Returns what a shell would: the exit code, or 128 + the signal."""
    return status if status >= 0 else 128 - status


def list_statuses(statuses: Mapping[int, int | None], ended_by_us: Sequence[int] = ()) -> str:
    """Lists how every rank ended, neighbours with the same end together.

    Args:
      statuses: exit status by rank; None for a rank that has not ended.
      ended_by_us: ranks that the launcher signalled.

    Returns:
      E.g. "rank 0: exit code 1; ranks 1-3: killed by SIGTERM (signal 15), by horovodrun".
    """
    parts: list[tuple[int, int, str]] = []
    for rank in sorted(statuses):
        status = statuses[rank]
        text = "still running" if status is None else describe_status(status)
        if rank in ended_by_us:
            text += ", by horovodrun" if status is not None and status < 0 else ", when told to end"
        if parts and parts[-1][2] == text and parts[-1][1] == rank - 1:
            parts[-1] = (parts[-1][0], rank, text)
        else:
            parts.append((rank, rank, text))
    return "; ".join(
        f"rank {first}: {text}" if first == last else f"ranks {first}-{last}: {text}"
        for first, last, text in parts
    )


def other_python(program: str) -> str | None:
    """Returns a hint where ranks ran in another Python than the launcher, such as without its venv.

    Args:
      program: the first word of the ranks' command.
    """
    found = shutil.which(program)
    if found is None or not os.path.basename(program).startswith("python"):
        return None
    if os.path.dirname(os.path.abspath(found)) == os.path.dirname(os.path.abspath(sys.executable)):
        return None
    return (
        f"{program} is {os.path.abspath(found)}, and this horovodrun belongs to {sys.executable}; "
        "if a module was not found, activate that environment or name its python"
    )
