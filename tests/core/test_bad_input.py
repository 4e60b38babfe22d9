"""What must not end, hang or fool a job: strangers at the rendezvous, a wrong environment, ranks of
other jobs and versions, and a machine that is out of something.

Each is a clear error in bounded time, or has no effect at all.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from horovod.common.rendezvous import parse_addresses
from horovod.runner import rendezvous_server
from horovod.runner.rendezvous_server import RendezvousServer
from tests.harness.horovodrun import PYTHON, run
from tests.unit.test_rendezvous import SECRET, hello, member

SOON_S = 20.0  # bounds a wait of some 3 s; the machine may be busy
MOST_BYTES = 6 << 20  # 64 of the 200 hold 60 KB each

# Meets the others, or says why not and after how long.
MEETS = """
import sys, time
from horovod.common import basics
begin_s = time.monotonic()
try:
    {before}
    basics.init()
    print("met", basics.rank(), basics.size())
except Exception as error:
    print(type(error).__name__, error)
    print(time.monotonic() - begin_s)
"""


def start(env: Mapping[str, str], before: str = "pass") -> subprocess.Popen[str]:
    """Starts one rank; `env` names variables without "HOROVOD_"."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "OMPI_", "PMI"))}
    plain["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    plain.update((f"HOROVOD_{name}", value) for name, value in env.items())
    return subprocess.Popen(
        [PYTHON, "-c", MEETS.format(before=before)], env=plain, text=True, stdout=subprocess.PIPE
    )


def outputs(processes: list[subprocess.Popen[str]], timeout_s: float = 60.0) -> list[list[str]]:
    """Returns the lines of each; kills those that run past the time, and then fails."""
    deadline_s = time.monotonic() + timeout_s
    try:
        return [
            process.communicate(timeout=max(0.1, deadline_s - time.monotonic()))[0].splitlines()
            for process in processes
        ]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def place(address: str, rank: int | str, size: int | str, **changes: str) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "SIZE": str(size),
        "RENDEZVOUS_ADDR": address,
        "SECRET_KEY": SECRET.hex(),
        "START_TIMEOUT_SECONDS": "50",
        **changes,
    }


def met(address: str, size: int = 2) -> bool:
    """Starts good ranks, and tells whether they meet."""
    ranks = [start(place(address, rank, size)) for rank in range(size)]
    return outputs(ranks) == [[f"met {rank} {size}"] for rank in range(size)]


@pytest.fixture
def server() -> Iterator[RendezvousServer]:
    with RendezvousServer(SECRET) as running:
        yield running


def connect(server: RendezvousServer) -> socket.socket:
    [address] = parse_addresses(server.address)
    return socket.create_connection(address, 10)


def nonce_of(stranger: socket.socket) -> bytes:
    greeting = b""
    while not greeting.endswith(b"\n"):
        greeting += stranger.recv(1024)
    return bytes.fromhex(greeting.split()[1].decode())


def says(data: bytes) -> Callable[[socket.socket, RendezvousServer], None]:
    return lambda stranger, _: stranger.sendall(data)


def replays(stranger: socket.socket, server: RendezvousServer) -> None:
    with connect(server) as first:
        good = hello(nonce_of(first), member(0, 2))
    stranger.sendall(good)
    assert b"wrong secret" in stranger.makefile("rb").read()


STRANGERS: dict[str, Callable[[socket.socket, RendezvousServer], None]] = {
    "silent": lambda stranger, server: None,
    "http": says(b"GET / HTTP/1.1\r\nHost: here\r\nContent-Length: 9223372036854775808\r\n\r\n"),
    "random bytes": says(random.Random(1).randbytes(5000)),
    "long without end": says(b"x" * 60_000),
    "length of 2^63": says(struct.pack(">Q", 1 << 63) + b"\n"),
    "number of 2^63": says(b'{"nonce": 9223372036854775808, "mac": 1e400, "body": {}}\n'),
    "number of 60,000 digits": says(b"9" * 60_000 + b"\n"),
    "leaves": lambda stranger, server: stranger.close(),
    "half closed": lambda stranger, server: stranger.shutdown(socket.SHUT_WR),
    "replays": replays,
}


@pytest.mark.parametrize("name", STRANGERS)
def test_ranks_meet_while_strangers_hold_the_door(name: str, server: RendezvousServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stranger = stack.enter_context(connect(server))
            STRANGERS[name](stranger, server)
        assert met(server.address)


@pytest.mark.parametrize("data", [b"", b"x" * 60_000], ids=["silent", "60 KB each"])
def test_200_strangers_cost_bounded_memory_and_little_time(data: bytes) -> None:
    tracemalloc.start()
    try:
        with contextlib.ExitStack() as stack:
            server = stack.enter_context(RendezvousServer(SECRET))
            for _ in range(200):
                stranger = stack.enter_context(connect(server))
                stranger.setblocking(False)
                stranger.send(data)
            begin_s = time.monotonic()
            assert met(server.address)
            assert time.monotonic() - begin_s < SOON_S
            held = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(True, rendezvous_server.__file__)]
            )
    finally:
        tracemalloc.stop()
    assert sum(trace.size for trace in held.traces) < MOST_BYTES


def test_a_stranger_that_sends_a_byte_now_and_then_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rendezvous_server, "_HANDSHAKE_S", 1.0)
    with RendezvousServer(SECRET) as server, connect(server) as stranger:
        end_s = time.monotonic() + 10
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while time.monotonic() < end_s:
                stranger.sendall(b"x")
                time.sleep(0.1)
        assert met(server.address)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"RANK": "2"}, "HOROVOD_RANK=2 is not in [0, HOROVOD_SIZE=2)"),
        ({"RANK": "-1"}, "HOROVOD_RANK=-1"),
        ({"RANK": "one"}, "HOROVOD_RANK is 'one'"),
        ({"RANK": "1_0"}, "HOROVOD_RANK is '1_0'"),
        ({"RANK": "1.0"}, "HOROVOD_RANK is '1.0'"),
        ({"SIZE": ""}, "HOROVOD_SIZE is ''"),
        ({"SIZE": "0"}, "HOROVOD_SIZE=0"),
        ({"SIZE": "9223372036854775808"}, "HOROVOD_SIZE is '9223372036854775808'"),
        ({"SIZE": "100000000"}, "HOROVOD_SIZE=100000000 is more than"),
        ({"SIZE": None}, "HOROVOD_SIZE is not set"),
        ({"RANK": None}, "HOROVOD_RANK is not set"),
        ({"LOCAL_RANK": "0"}, "HOROVOD_LOCAL_SIZE is not set"),
        ({"CROSS_SIZE": "1"}, "HOROVOD_CROSS_RANK is not set"),
        ({"LOCAL_RANK": "3", "LOCAL_SIZE": "3"}, "HOROVOD_LOCAL_RANK=3"),
        ({"SECRET_KEY": ""}, "HOROVOD_SECRET_KEY"),
        ({"SECRET_KEY": None}, "HOROVOD_SECRET_KEY"),
        ({"SECRET_KEY": "no hex"}, "HOROVOD_SECRET_KEY"),
        ({"RENDEZVOUS_ADDR": ""}, "HOROVOD_RENDEZVOUS_ADDR"),
        ({"RENDEZVOUS_ADDR": "here"}, "HOROVOD_RENDEZVOUS_ADDR"),
        ({"RENDEZVOUS_ADDR": "here:70000"}, "HOROVOD_RENDEZVOUS_ADDR"),
        ({"HOSTNAME": "a\udcff"}, "HOROVOD_HOSTNAME"),
        ({"HOSTNAME": "a" * 300}, "HOROVOD_HOSTNAME"),
        ({"FUSION_THRESHOLD": "64MB"}, "HOROVOD_FUSION_THRESHOLD is '64MB'"),
        ({"FUSION_THRESHOLD": "-1"}, "HOROVOD_FUSION_THRESHOLD is '-1'"),
        ({"FUSION_THRESHOLD": "1" * 30}, "HOROVOD_FUSION_THRESHOLD"),
        ({"CYCLE_TIME": "nan"}, "HOROVOD_CYCLE_TIME is 'nan'"),
        ({"CYCLE_TIME": "inf"}, "HOROVOD_CYCLE_TIME is 'inf'"),
        ({"START_TIMEOUT_SECONDS": "soon"}, "HOROVOD_START_TIMEOUT_SECONDS is 'soon'"),
        ({"START_TIMEOUT_SECONDS": "0"}, "HOROVOD_START_TIMEOUT_SECONDS is '0'"),
        ({"STALL_CHECK_DISABLE": "perhaps"}, "HOROVOD_STALL_CHECK_DISABLE is 'perhaps'"),
        ({"LOG_LEVEL": "loud"}, "HOROVOD_LOG_LEVEL is 'loud'"),
    ],
    ids=str,
)
def test_a_wrong_environment_is_refused_by_name(changes: dict[str, str | None], words: str) -> None:
    env = {**place("127.0.0.1:9", 0, 2), **changes}
    [lines] = outputs([start({name: text for name, text in env.items() if text is not None})])
    assert lines[0].startswith("ValueError init: ") and words in lines[0]
    assert float(lines[1]) < SOON_S


def test_a_transport_that_does_not_exist(server: RendezvousServer) -> None:
    for lines in outputs(
        [start(place(server.address, rank, 2, TRANSPORT="pigeon")) for rank in range(2)]
    ):
        assert "HOROVOD_TRANSPORT is 'pigeon'" in lines[0] and "auto" in lines[0]
        assert float(lines[1]) < SOON_S


def test_a_rank_of_another_job_is_told_and_changes_nothing(server: RendezvousServer) -> None:
    other = start(place(server.address, 0, 2, SECRET_KEY="00ff"))
    [lines] = outputs([other])
    assert lines[0].startswith("HorovodInternalError init: ") and "wrong secret" in lines[0]
    assert "HOROVOD_SECRET_KEY" in lines[0] and float(lines[1]) < SOON_S
    assert met(server.address)


@pytest.mark.parametrize(
    ("changes", "before", "words"),
    [
        ({"RANK": "0"}, "pass", ["two living processes are rank 0", "each rank must be one"]),
        ({"SIZE": "3"}, "pass", ["rank 1", "size 3", "rank 0", "size 2", "one job"]),
        ({}, "import horovod; horovod.__version__ = '9.9.9'",
         ["rank 1", "version 9.9.9", "rank 0", "install one version everywhere"]),
        ({"STAGING_BYTES": "8192"}, "pass", ["rank 1", "HOROVOD_STAGING_BYTES='8192'", "rank 0"]),
    ],
    ids=["same rank", "other size", "other version", "other staging"],
)  # fmt: skip
def test_ranks_that_contradict_each_other_are_both_told(
    changes: dict[str, str], before: str, words: list[str], server: RendezvousServer
) -> None:
    first = start(place(server.address, 0, 2))
    second = start({**place(server.address, 1, 2), **changes}, before)
    told = outputs([first, second])
    for lines in told:
        assert float(lines[1]) < SOON_S
        for word in words:
            assert word in lines[0]


def test_a_launcher_of_another_version_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with contextlib.suppress(OSError):
                client, _ = listener.accept()
                client.sendall(b"HVD-RENDEZVOUS-2 " + b"00" * 32 + b"\n")

        threading.Thread(target=greet, daemon=True).start()
        [lines] = outputs([start(place(f"127.0.0.1:{listener.getsockname()[1]}", 0, 2))])
    assert "HVD-RENDEZVOUS-2" in lines[0] and "HVD-RENDEZVOUS-1" in lines[0]
    assert "install one version" in lines[0] and float(lines[1]) < SOON_S


def test_a_host_that_does_not_resolve_is_named() -> None:
    env = place("nowhere.invalid:1", 0, 2, START_TIMEOUT_SECONDS="2")
    [lines] = outputs([start(env)])
    assert "nowhere.invalid:1" in lines[0] and "Name or service not known" in lines[0]
    assert float(lines[1]) < SOON_S


def limited(files: int, size: int, *command: str) -> subprocess.CompletedProcess[bytes]:
    code = f'ulimit -n {files}; exec "$@"'
    return run("-np", size, *command, wrapper=["bash", "-c", code, "bash"])


def test_64_descriptors_are_enough_for_four_ranks() -> None:
    done = limited(64, 4, PYTHON, "-c", MEETS.format(before="pass"))
    assert done.returncode == 0
    assert sorted(line.split(b":")[1] for line in done.stdout.splitlines()) == [
        f"met {rank} 4".encode() for rank in range(4)
    ]


def test_too_few_descriptors_are_said_before_anything_starts() -> None:
    done = limited(64, 40, "true")
    assert done.returncode == 126 and done.stdout == b""
    assert b"-np 40" in done.stderr and b"ulimit -n" in done.stderr and b"64" in done.stderr


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_full_disk_ends_the_copy_and_not_the_job(name: str, tmp_path: Path) -> None:
    (tmp_path / "rank.0").mkdir()
    (tmp_path / "rank.0" / name).symlink_to("/dev/full")
    code = "import sys, time\nfor i in range(3): print(i, file=sys.{}); time.sleep(0.2)"
    done = run("-np", 2, "--output-filename", tmp_path, PYTHON, "-c", code.format(name))
    assert done.returncode == 0
    assert getattr(done, name).count(b"[0]") == 3
    assert f"--output-filename {tmp_path}: [Errno 28]".encode() in done.stderr
    assert (tmp_path / "rank.1" / name).read_bytes() == b"0\n1\n2\n"


def test_a_folder_for_copies_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("-np", 2, "--output-filename", tmp_path / "file", "sleep", "60")
    assert done.returncode == 126
    assert b"cannot be started" in done.stderr and str(tmp_path / "file").encode() in done.stderr


@pytest.mark.parametrize("redirect", [">/dev/full", "2>/dev/full"])
def test_output_that_cannot_be_written_fails_the_job(redirect: str) -> None:
    code = f'exec "$@" {redirect}'
    done = run("-np", 1, "bash", "-c", "echo x; echo y >&2", wrapper=["bash", "-c", code, "bash"])
    assert done.returncode == 1
    if redirect == ">/dev/full":
        assert b"standard output: [Errno 28] No space left on device" in done.stderr


def test_a_rank_stopped_in_the_middle_of_a_handshake_keeps_nobody_waiting(
    server: RendezvousServer,
) -> None:
    # Its part is half sent: the others are told who is missing, not that the server is mute.
    with connect(server) as stopped:
        stopped.sendall(hello(nonce_of(stopped), member(1, 2))[:100])
        env = place(server.address, 0, 2, START_TIMEOUT_SECONDS="5")
        [lines] = outputs([start(env)])
    assert "waited" in lines[0] and "rank 1" in lines[0]
    assert float(lines[1]) < SOON_S


def test_a_killed_rank_may_come_again(server: RendezvousServer) -> None:
    env = place(server.address, 0, 2)
    first = start(env)
    deadline_s = time.monotonic() + 30
    while not server._gathering._members:  # until it waits there
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    outputs([first])
    assert met(server.address)
