"""horovodrun's flags that set a knob: each is one row here, and sets one variable of the ranks.

To add one: a row in VALUES or SWITCHES.  Range and existence are not repeated here; they come
from the table that the build makes of the core's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

__all__ = ["SWITCHES", "VALUES", "Switch", "Value", "knob_fault", "knob_names", "knob_table"]


def _megabytes(text: str) -> str:
    return str(int(float(text) * (1 << 20)))


def _number(text: str) -> str:
    float(text)
    return text


def _whole(text: str) -> str:
    return str(int(text))


def _level(text: str) -> str:
    return text.lower()


class Value(NamedTuple):
    """A flag with a value."""

    flag: str
    env: str
    to_env: Callable[[str], str]  # raises ValueError for what is not a value
    metavar: str
    help: str


class Switch(NamedTuple):
    """A flag without a value."""

    flag: str
    env: str
    setting: str
    help: str


VALUES: tuple[Value, ...] = (
    Value("--fusion-threshold-mb", "HOROVOD_FUSION_THRESHOLD", _megabytes, "MB",
          "most MiB of small tensors that travel as one"),
    Value("--cycle-time-ms", "HOROVOD_CYCLE_TIME", _number, "MS",
          "shortest time to gather tensors before a round"),
    Value("--cache-capacity", "HOROVOD_CACHE_CAPACITY", _whole, "N",
          "number of tensors whose negotiation is remembered"),
    Value("--thread-affinity", "HOROVOD_THREAD_AFFINITY", str, "CPUS",
          "CPUs of the background threads, one per local rank, with commas"),
    Value("--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS", _number, "S",
          "time-out of the TCP transport"),
    Value("--start-timeout", "HOROVOD_START_TIMEOUT_SECONDS", _number, "S",
          "how long init() waits for the other ranks"),
    Value("--log-level", "HOROVOD_LOG_LEVEL", _level, "LEVEL",
          "lowest level printed: trace, debug, info, warning, error or off"),
    Value("--timeline-filename", "HOROVOD_TIMELINE", str, "FILE",
          "write a timeline of the collectives"),
    Value("--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS", _number, "S",
          "how long a tensor waits for a rank before a warning"),
    Value("--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", _number,
          "S", "how long a tensor waits for a rank before the job is aborted; 0: for ever"),
)  # fmt: skip

SWITCHES: tuple[Switch, ...] = (
    Switch("--tcp", "HOROVOD_TRANSPORT", "tcp", "move all bytes between ranks by TCP"),
    Switch("--gloo", "HOROVOD_TRANSPORT", "tcp",
           "the built-in TCP transport, which stands where Gloo stood"),
    Switch("--stall-check", "HOROVOD_STALL_CHECK_DISABLE", "0", "warn about waiting tensors"),
    Switch("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE", "1", "do not"),
    Switch("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "1",
           "mark the rounds in the timeline"),
    Switch("--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "0", "do not"),
    Switch("--log-with-timestamp", "HOROVOD_LOG_TIMESTAMP", "1", "log lines carry the time"),
    Switch("--log-without-timestamp", "HOROVOD_LOG_TIMESTAMP", "0", "they do not"),
)  # fmt: skip


def knob_names() -> set[str]:
    """Returns every variable that the core knows, built or not; none in a tree not built."""
    try:
        module = importlib.import_module("horovod.common._knobs")
    except ModuleNotFoundError:
        return set()
    return {row.env for row in (*module.KNOBS, *module.LATER)}


def knob_table() -> Mapping[str, Any] | None:
    """Returns the knobs of the installed core by variable; None in a tree that was not built."""
    try:
        module = importlib.import_module("horovod.common._knobs")
    except ModuleNotFoundError:
        return None
    return {knob.env: knob for knob in module.KNOBS}


def knob_fault(flag: str, env: str, setting: str, table: Mapping[str, Any] | None) -> str | None:
    """Says why this build cannot take a setting; None if it can.

    Args:
      flag: as the user wrote it.
      env: the variable it sets.
      setting: the value for the variable.
      table: knob_table()'s.
    """
    if table is None:
        return None
    knob = table.get(env)
    if knob is None:
        return f"{flag}: not built yet: this version has no {env}"
    if knob.type in ("INT", "INT64", "DOUBLE") and (
        not knob.minimum <= float(setting) <= knob.maximum
    ):
        unit = f" {knob.unit}" if knob.unit else ""
        return (
            f"{flag}: {env} would be {setting}{unit}; it must be at least {knob.minimum} and at "
            f"most {knob.maximum}"
        )
    return None
