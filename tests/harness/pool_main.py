"""One process of a pool: runs the calls that come through a socket until it is closed.

Arguments: the socket's descriptor; "lives-on" where Horovod stays initialised between calls, else
"cleans-up".
"""

from __future__ import annotations

import faulthandler
import importlib
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection

__all__: list[str] = []


def _call(what: bytes) -> bytes:
    try:
        module, name, args = pickle.loads(what)
        return pickle.dumps((True, getattr(importlib.import_module(module), name)(*args)))
    except BaseException:  # SystemExit and KeyboardInterrupt are failures of a rank, too
        return pickle.dumps((False, traceback.format_exc()))


def _clean_up() -> None:
    from horovod.common import basics

    basics.shutdown()
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].compat.v1.reset_default_graph()


def _main(descriptor: int, lives_on: bool) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    with Connection(descriptor) as connection:
        while True:
            try:
                what = connection.recv_bytes()
            except EOFError:
                return
            outcome = _call(what)
            if not lives_on:
                _clean_up()
            connection.send_bytes(outcome)


if __name__ == "__main__":
    _main(int(sys.argv[1]), lives_on=sys.argv[2] == "lives-on")
