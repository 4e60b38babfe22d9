"""horovodrun: `main` is the command."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

from horovod.runner.descriptors import descriptor_fault
from horovod.runner.environment import OWN_VARIABLES, rank_environment
from horovod.runner.job import Job, JobSpec
from horovod.runner.knobs import knob_names
from horovod.runner.misspelt import misspelt
from horovod.runner.options import Options, parse_options
from horovod.runner.rendezvous_server import RendezvousServer
from horovod.runner.report import other_python

__all__ = ["main"]

_CANNOT_RUN = 126  # as shells have it
_NOT_FOUND = 127


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the job that the command line describes.

    Args:
      argv: the arguments after the program's name; default: sys.argv's.

    Returns:
      The exit code: 0, the first failing rank's, 128 + signal, 1 when only the output was lost, 126
      or 127 when the job cannot be started or the command is not found.  A fault in the options
      raises SystemExit(2).
    """
    _fill_standard_descriptors()
    options = parse_options(sys.argv[1:] if argv is None else argv)
    if options.check_build:
        # Imported here: only this flag needs it.
        from horovod.runner.check_build import describe_build

        print(describe_build())
        return 0
    program = options.command[0]
    if shutil.which(program) is None:
        if os.path.dirname(program) and os.path.exists(program):
            print(f"horovodrun: {program}: is not executable", file=sys.stderr)
            return _CANNOT_RUN
        print(f"horovodrun: {program}: command not found", file=sys.stderr)
        return _NOT_FOUND
    fault = descriptor_fault(options.size, copies=options.output_dir is not None)
    if fault:
        print(f"horovodrun: {fault}", file=sys.stderr)
        return _CANNOT_RUN
    for variable, knob in misspelt(os.environ, knob_names() | OWN_VARIABLES):
        print(
            f"horovodrun: {variable} is set, and nothing reads it; {knob} was probably meant",
            file=sys.stderr,
        )
    try:
        code = _run(options)
        hint = other_python(program) if code else None
        if hint:
            print(f"horovodrun: {hint}", file=sys.stderr)
        return code
    except OSError as error:
        print(f"horovodrun: the job cannot be started: {error}", file=sys.stderr)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_RUN


def _run(options: Options) -> int:
    secret = os.urandom(32)
    job_id = os.urandom(16).hex()
    with RendezvousServer(secret, options.size) as server:
        environments = [
            rank_environment(
                {**os.environ, **options.knobs},
                rank=rank,
                size=options.size,
                hostname=options.hostname,
                rendezvous_address=server.address,
                secret=secret,
                job_id=job_id,
            )
            for rank in range(options.size)
        ]
        return Job(
            JobSpec(
                command=options.command,
                environments=environments,
                job_id=job_id,
                output_dir=options.output_dir,
                timestamps=options.timestamps,
                verbose=options.verbose,
            ),
            rank_ended=server.rank_ended,
        ).run()


def _fill_standard_descriptors() -> None:
    """Opens /dev/null for each of 0, 1 and 2 that is closed, before a pipe takes its number."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return


if __name__ == "__main__":
    sys.exit(main())
