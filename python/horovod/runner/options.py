"""horovodrun's command line.

To add a flag that sets a knob: knobs.py.  A flag of another kind: here.  One that programs
know but nothing stands behind yet is a row of _NOT_BUILT, so that it is never ignored.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from horovod import __version__
from horovod.runner.config_file import ConfigFileError, read_config_file
from horovod.runner.hosts import HostsError, only_local, parse_hostfile, parse_hosts
from horovod.runner.knobs import SWITCHES, VALUES, knob_fault, knob_table

__all__ = ["Options", "parse_options"]


class Options(NamedTuple):
    """What the user asked for, checked.

    Attributes:
      size: number of ranks, >= 1; 0 with check_build.
      hostname: the host as the user named it.
      command: program and arguments; empty with check_build.
      knobs: variables to set for every rank.
      output_dir: where copies of the output go, or None.
      timestamps: whether each printed line begins with the time.
      verbose: whether the launcher says what it does.
      check_build: only print what this build has.
    """

    size: int
    hostname: str
    command: list[str]
    knobs: dict[str, str]
    output_dir: str | None
    timestamps: bool
    verbose: bool
    check_build: bool


# Flags, whether they take a value, and what is missing.
_NOT_BUILT: tuple[tuple[tuple[str, ...], bool, str], ...] = (
    (("-p", "--ssh-port"), True, "starting ranks on other hosts"),
    (("-i", "--ssh-identity-file"), True, "starting ranks on other hosts"),
    (("--network-interfaces", "--network-interface"), True, "jobs on several hosts"),
    (("--mpi",), False, "MPI"),
    (("--mpi-args",), True, "MPI"),
    (("--mpi-threads-disable",), False, "MPI"),
    (("--binding-args",), True, "binding ranks to CPUs"),
    (("--hierarchical-allreduce",), False, "the hierarchical algorithm"),
    (("--hierarchical-allgather",), False, "the hierarchical algorithm"),
    (("--num-nccl-streams",), True, "NCCL"),
    (("--autotune",), False, "autotuning"),
    (("--autotune-log-file",), True, "autotuning"),
    (("--autotune-warmup-samples",), True, "autotuning"),
    (("--autotune-steps-per-sample",), True, "autotuning"),
    (("--autotune-bayes-opt-max-samples",), True, "autotuning"),
    (("--autotune-gaussian-process-noise",), True, "autotuning"),
    (("--min-np", "--min-num-proc"), True, "elastic training"),
    (("--max-np", "--max-num-proc"), True, "elastic training"),
    (("--host-discovery-script",), True, "elastic training"),
    (("--slots-per-host",), True, "elastic training"),
    (("--elastic-timeout",), True, "elastic training"),
    (("--reset-limit",), True, "elastic training"),
    (("--blacklist-cooldown-range",), True, "elastic training"),
)

# They ask for what is so anyway: those algorithms do not exist, nor does a cache of checks.
_ALREADY_SO = (
    ("--no-hierarchical-allreduce", "use the flat algorithm (the only one)"),
    ("--no-hierarchical-allgather", "use the flat algorithm (the only one)"),
    ("--disable-cache", "check everything anew (always so: nothing is remembered between runs)"),
)


def parse_options(argv: Sequence[str]) -> Options:
    """Reads the command line, and the file that --config-file names; the line wins.

    Args:
      argv: the arguments after the program's name.

    Returns:
      The checked options.

    Raises:
      SystemExit: 2 with the fault on standard error; 0 after --help and --version.
    """
    table = knob_table()
    parser = _parser(table)
    parsed = parser.parse_args(argv)
    if parsed.config_file is not None:
        try:
            parsed = parser.parse_args([*read_config_file(parsed.config_file), *argv])
        except ConfigFileError as error:
            parser.error(str(error))
    if parsed.check_build:
        return Options(0, "", [], {}, None, False, parsed.verbose, True)
    size, hostname = _size_and_host(parser, parsed)
    command = parsed.command[1:] if parsed.command[:1] == ["--"] else parsed.command
    if not command:
        parser.error("no command given; e.g. horovodrun -np 2 python train.py")
    for env, (flag, setting) in parsed.knobs.items():
        fault = knob_fault(flag, env, setting, table)
        if fault:
            parser.error(fault)
    return Options(
        size=size,
        hostname=hostname,
        command=command,
        knobs={env: setting for env, (_, setting) in parsed.knobs.items()},
        output_dir=parsed.output_filename,
        timestamps=parsed.timestamps,
        verbose=parsed.verbose,
        check_build=False,
    )


def _size_and_host(parser: argparse.ArgumentParser, parsed: argparse.Namespace) -> tuple[int, str]:
    size = parsed.num_proc
    if size is not None and size < 1:
        parser.error(f"-np {size}: the number of ranks must be at least 1")
    if parsed.hosts is not None and parsed.hostfile is not None:
        parser.error("-H and --hostfile cannot both say where to run; give one")
    if parsed.hosts is None and parsed.hostfile is None:
        if size is None:
            parser.error("how many ranks? e.g. horovodrun -np 2 python train.py")
        return size, "localhost"
    flag, text = ("-H", parsed.hosts) if parsed.hosts is not None else (
        "--hostfile", parsed.hostfile
    )  # fmt: skip
    try:
        host = only_local(parse_hosts(text) if flag == "-H" else parse_hostfile(text))
    except HostsError as error:
        parser.error(str(error))
    if size is not None and size > host.slots:
        parser.error(
            f"-np {size}: more ranks than the {host.slots} slots that {flag} {text} has; "
            "give the host more slots or ask for fewer ranks"
        )
    return size or host.slots, host.name


class _SetKnob(argparse.Action):
    """Records {variable: (flag as written, setting)}; the last one wins."""

    def __init__(self, row: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._row = row

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        flag = option_string or self._row.flag
        if self.nargs == 0:
            setting = self._row.setting
        else:
            try:
                setting = self._row.to_env(values)
            except (ValueError, OverflowError):
                parser.error(f"{flag}: {values!r} is not a number")
        namespace.knobs = {**namespace.knobs, self._row.env: (flag, setting)}


class _NotBuilt(argparse.Action):
    """Refuses a flag by its name."""

    def __init__(self, what: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._what = what

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> NoReturn:
        parser.error(f"{option_string}: {self._what}: not built yet; leave the flag out")


def _parser(table: Mapping[str, Any] | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="horovodrun",
        usage="horovodrun -np N [options] command ...",
        description="Starts N ranks of a program on this host and ends them together.  Each has "
        "an empty standard input.",
    )
    add = parser.add_argument
    add("-v", "--version", action="version", version=__version__)
    add("-np", "--num-proc", type=int, metavar="N", help="number of ranks")
    add("-H", "--hosts", metavar="HOST:SLOTS", help="where to run, e.g. localhost:2")
    add("-hostfile", "--hostfile", metavar="FILE", help="the same, lines 'localhost slots=2'")
    add("-cb", "--check-build", action="store_true", help="print what this build has")
    add("--verbose", action="store_true", help="say what the launcher does")
    add("--config-file", metavar="YAML", help="read options from a file; the command line wins")
    add("--output-filename", metavar="DIR",
        help="also write each rank's output to DIR/rank.<rank>/stdout and stderr")  # fmt: skip
    add("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true",
        dest="timestamps", help="begin each line of output with the time")  # fmt: skip
    knobs = parser.add_argument_group("knobs; each sets the variable it names for all ranks")
    later = parser.add_argument_group("not built yet; each is refused by its name")
    for value in VALUES:
        (knobs if table is None or value.env in table else later).add_argument(
            value.flag, action=_SetKnob, row=value, dest="knobs", default={},
            metavar=value.metavar, help=f"{value.help} ({value.env})")  # fmt: skip
    for switch in SWITCHES:
        (knobs if table is None or switch.env in table else later).add_argument(
            switch.flag, action=_SetKnob, row=switch, dest="knobs", default={}, nargs=0,
            help=f"{switch.help} ({switch.env}={switch.setting})")  # fmt: skip
    for flag, text in _ALREADY_SO:
        add(flag, action="store_true", dest="already_so", help=text)
    for flags, has_value, what in _NOT_BUILT:
        later.add_argument(*flags, action=_NotBuilt, what=what, nargs=None if has_value else 0,
                           metavar="VALUE" if has_value else None, default=argparse.SUPPRESS,
                           help=what)  # fmt: skip
    add("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    return parser
