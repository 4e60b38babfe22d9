"""What each rank of `run_ranks` runs: one call, its outcome in a file.

Arguments: the call (pickled module, function, arguments), the file for the outcome, and seconds
after which the process ends itself, for the case that its parent has died.
"""

from __future__ import annotations

import faulthandler
import importlib
import pickle
import signal
import sys
import traceback
from pathlib import Path

__all__: list[str] = []


def _main(call_file: str, outcome_file: str, give_up_s: str) -> int:
    # The signal works also while every thread hangs in native code.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    faulthandler.dump_traceback_later(float(give_up_s), exit=True)
    try:
        module, name, args = pickle.loads(Path(call_file).read_bytes())
        value = getattr(importlib.import_module(module), name)(*args)
        outcome = pickle.dumps((True, value))
    except BaseException:  # SystemExit and KeyboardInterrupt are failures of a rank, too
        outcome = pickle.dumps((False, traceback.format_exc()))
    Path(outcome_file).write_bytes(outcome)
    succeeded, _ = pickle.loads(outcome)
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
