"""The C API of libhorovod_core.so, by ctypes: declarations and the call convention, no logic."""

from __future__ import annotations

import ctypes
import functools
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint64,
    c_void_p,
)
from pathlib import Path

__all__ = [
    "ALLOCATE",
    "CANCELLED",
    "CoreError",
    "DEADLINE_EXCEEDED",
    "DONE",
    "FAILED_PRECONDITION",
    "DTYPES",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "KINDS",
    "NOT_INITIALIZED",
    "OK",
    "OUT_OF_RANGE",
    "PEER_LOST",
    "Request",
    "SHUTDOWN",
    "Tensor",
    "UNIMPLEMENTED",
    "World",
    "check",
    "counters",
    "failure",
    "SLICE_S",
    "library_path",
    "load",
    "shutdown",
    "supports",
]

SLICE_S = 0.1  # of a wait, so that a signal handler, such as that of Ctrl-C, runs meanwhile

# hvd_code, as far as Python tells them apart.
OK = 0
CANCELLED = 1
INVALID_ARGUMENT = 2
FAILED_PRECONDITION = 3
OUT_OF_RANGE = 4
UNIMPLEMENTED = 5
INTERNAL = 6
PEER_LOST = 7
DEADLINE_EXCEEDED = 8
SHUTDOWN = 9
NOT_INITIALIZED = 10

# hvd_kind and hvd_dtype, by number.
KINDS = (
    "allreduce",
    "allgather",
    "broadcast",
    "alltoall",
    "reducescatter",
    "barrier",
    "join",
    "add_process_set",
    "remove_process_set",
)
DTYPES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
)

_MOST_TEXT_BYTES = 4096

ALLOCATE = CFUNCTYPE(c_int, c_void_p, c_int32, POINTER(c_int64), c_int32, POINTER(c_void_p))
DONE = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class World(Structure):
    """hvd_world."""

    _fields_ = (
        ("rank", c_int32),
        ("size", c_int32),
        ("local_rank", c_int32),
        ("local_size", c_int32),
        ("cross_rank", c_int32),
        ("cross_size", c_int32),
        ("homogeneous", c_int32),
        ("generation", c_uint64),
        ("nonce", c_char_p),
        ("secret", POINTER(c_uint8)),
        ("secret_size", c_size_t),
        ("hosts", POINTER(c_char_p)),
        ("endpoints", POINTER(c_char_p)),
        ("num_process_sets", c_int32),
        ("first_set_id", c_int32),
        ("set_sizes", POINTER(c_int32)),
        ("set_ranks", POINTER(c_int32)),
        ("dynamic_process_sets", c_int32),
        ("start_timeout_s", c_double),
    )


class Tensor(Structure):
    """hvd_tensor."""

    _fields_ = (
        ("shape", POINTER(c_int64)),
        ("ndim", c_int32),
        ("input", c_void_p),
        ("output", c_void_p),
    )


class Request(Structure):
    """hvd_request."""

    _fields_ = (
        ("name", c_char_p),
        ("process_set", c_int32),
        ("kind", c_int32),
        ("dtype", c_int32),
        ("wire_dtype", c_int32),
        ("reduce_op", c_int32),
        ("prescale", c_double),
        ("postscale", c_double),
        ("root", c_int32),
        ("gradient", c_int32),
        ("grouped", c_int32),
        ("num_others", c_int32),
        ("tensors", POINTER(Tensor)),
        ("num_tensors", c_int32),
        ("splits", POINTER(c_int32)),
        ("num_splits", c_int32),
        ("ranks", POINTER(c_int32)),
        ("num_ranks", c_int32),
        ("received_splits", POINTER(c_int32)),
        ("allocate", ALLOCATE),
        ("done", DONE),
        ("context", c_void_p),
    )


class CoreError(RuntimeError):
    """A call of the core failed.

    Attributes:
      code: an hvd_code.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def library_path() -> Path:
    """Returns where the core lies in the installed package."""
    return Path(__file__).absolute().parent.with_name("lib") / "libhorovod_core.so"


@functools.cache
def load() -> ctypes.CDLL:
    """Loads the core at the first call.

    Returns:
      The library, with argument types declared.

    Raises:
      ImportError: it is missing or does not load; the text is the loader's.
    """
    try:
        # Global, so that the framework's op library finds the same copy.
        library = ctypes.CDLL(str(library_path()), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ImportError(f"horovod: cannot load its core: {error}; run: make build") from error
    library.hvd_last_error.restype = c_char_p
    library.hvd_listen.argtypes = (c_int, c_char_p, c_size_t)
    library.hvd_start.argtypes = (POINTER(World),)
    library.hvd_wait_ready.argtypes = (c_double,)
    library.hvd_shutdown.argtypes = (c_int, c_double)
    library.hvd_failure.argtypes = (c_char_p, c_size_t)
    library.hvd_count.argtypes, library.hvd_count.restype = (c_int,), c_uint64
    library.hvd_process_set_size.argtypes = (c_int,)
    library.hvd_process_set_rank.argtypes = (c_int,)
    library.hvd_supports.argtypes = (c_int32, c_int32, c_int32, c_int32)
    library.hvd_enqueue.argtypes = (POINTER(Request), POINTER(c_uint64))
    library.hvd_cancel.argtypes = (c_uint64,)
    library.hvd_cancel.restype = None
    library.hvd_name_next.argtypes = (c_char_p,)
    library.hvd_name_next.restype = None
    library.hvd_take_next_name.restype = c_char_p
    library.hvd_refuse.argtypes = (POINTER(Request), c_char_p)
    library.hvd_refuse.restype = None
    return library


def check(code: int) -> None:
    """Raises CoreError with the core's text unless `code`, just returned, is OK."""
    if code != OK:
        raise CoreError(code, load().hvd_last_error().decode(errors="replace"))


def supports(kind: int, dtype: int, reduce_op: int, grouped: bool = False) -> tuple[int, str]:
    """Tells whether the core has a collective for an element type, before `init()` too.

    Args:
      kind: a number of KINDS.
      dtype: a number of DTYPES.
      reduce_op: a ReduceOp; only reductions look at it.
      grouped: whether a group of such tensors is meant.

    Returns:
      OK and "", or the code and the text with which a request would be refused.
    """
    code = load().hvd_supports(kind, dtype, reduce_op, int(grouped))
    return code, load().hvd_last_error().decode() if code != OK else ""


def shutdown(exit_status: int) -> None:
    """Ends the generation; waits in slices, so that Ctrl-C ends the wait.

    Raises:
      CoreError: called from the completion of a collective.
    """
    while (code := load().hvd_shutdown(exit_status, SLICE_S)) == DEADLINE_EXCEEDED:
        pass
    check(code)


def counters() -> dict[str, int]:
    """Returns what the control plane of this generation has done on this rank so far.

    `reports_in_full` and `reports_cached` count the tensors that this rank announced, with all they
    are or by a bit; `tensors_in_full` and `tensors_cached` those in the answers; `calls` the
    collectives that ran; `frames_sent`, `frame_bytes_sent` and
    `frames_received` the control messages.
    """
    names = (
        "frames_sent",
        "frame_bytes_sent",
        "reports_in_full",
        "reports_cached",
        "tensors_in_full",
        "tensors_cached",
        "calls",
        "frames_received",
    )
    return {name: load().hvd_count(number) for number, name in enumerate(names)}


def failure() -> tuple[int, str]:
    """Returns the code and the text of why the runtime can do no more; OK and "" if it can."""
    text = ctypes.create_string_buffer(_MOST_TEXT_BYTES)
    code = load().hvd_failure(text, len(text))
    return code, text.value.decode(errors="replace")
