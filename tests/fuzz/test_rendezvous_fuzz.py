"""Damaged conversations with the rendezvous, on either side, by seed.

Each case is made by one seed from a conversation that is right: a fault prints the seed, and
FUZZ_SEED=<seed> runs that case alone.  What lies under the mac is damaged, too, since ranks and
launcher may be of different versions.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from horovod.common import rendezvous
from horovod.common.rendezvous import GREETING, RendezvousError, Round, server_mac
from horovod.runner.rendezvous_server import RendezvousServer
from tests.unit.test_rendezvous import SECRET, hello, meet_all, member

CASES = 400
MEET_EVERY = 50
MOST_BYTES = 8 << 20
ODD = [None, True, -1, 0, 2, 1 << 31, 1 << 63, 1e308, "", "x" * 1000, "\ud800", [], [[]], {}, "0"]


def seeds(first: int) -> list[int]:
    chosen = os.environ.get("FUZZ_SEED")
    return [int(chosen)] if chosen else list(range(first, first + CASES))


# Damage to bytes.


def truncated(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def with_other_numbers(rng: random.Random, data: bytes) -> bytes:
    number = rng.choice([b"-1", b"9" * 30, b"9" * 5000, b"1e400", b"9223372036854775808", b"NaN"])
    return re.sub(rb"\d+", lambda match: number if rng.random() < 0.2 else match[0], data)


def stuffed(rng: random.Random, data: bytes) -> bytes:
    place = rng.randrange(len(data))
    piece = rng.choice([b"\n", b"[", b"{", b'"', b"\0", b"\xff", rng.randbytes(64)])
    return data[:place] + piece * rng.choice([1, 100, 2000]) + data[place:]


def reordered(rng: random.Random, data: bytes) -> bytes:
    mark = rng.choice([b'"', b",", b" "])
    pieces = data.split(mark)
    rng.shuffle(pieces)
    return mark.join(pieces)


def repeated(rng: random.Random, data: bytes) -> bytes:
    return data * rng.randint(2, 20)


DAMAGES: list[Callable[[random.Random, bytes], bytes]] = [
    truncated, flipped, with_other_numbers, stuffed, reordered, repeated,
]  # fmt: skip


def damaged(rng: random.Random, data: bytes) -> bytes:
    for _ in range(rng.randint(1, 2)):
        data = rng.choice(DAMAGES)(rng, data) or b"\n"
    return data


def odd(rng: random.Random, body: dict[str, Any]) -> dict[str, Any]:
    """Damage that its author has signed."""
    body = dict(body)
    for _ in range(rng.randint(1, 3)):
        key = rng.choice([*body, "more"])
        if rng.random() < 0.3:
            body.pop(key, None)
        else:
            body[key] = rng.choice(ODD)
    return body


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What threads raised, though nobody asked."""
    seen: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(repr(args.exc_value)))
    return seen


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < MOST_BYTES


def read_line(sock: socket.socket) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (data := sock.recv(65536)):
        line += data
    return line


def read_to_the_end(sock: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while sock.recv(65536):
            pass


def talk_to_server(rng: random.Random, address: tuple[str, int], recorded: list[bytes]) -> None:
    with socket.create_connection(address, 10) as sock:
        nonce = bytes.fromhex(read_line(sock).split()[1].decode())
        who = member(rng.randrange(2), rng.choice([1, 2, 2]))
        kind = rng.randrange(4)
        if kind == 0:
            line = hello(nonce, odd(rng, who))
        elif kind == 1 and recorded:
            line = rng.choice(recorded)
        else:
            line = damaged(rng, hello(nonce, who))
        recorded[:] = [*recorded[-9:], hello(nonce, who)]
        with contextlib.suppress(OSError):  # the server may close at any point
            for start in range(0, len(line), step := rng.choice([7, 1000, 1 << 20])):
                sock.sendall(line[start : start + step])
            sock.shutdown(socket.SHUT_WR)
        read_to_the_end(sock)  # closed by the server: it has dealt with all of it


def test_the_server_outlives_every_client(faults: list[str]) -> None:
    recorded: list[bytes] = []
    with bounded_memory(), RendezvousServer(SECRET) as server:
        [address] = rendezvous.parse_addresses(server.address)
        for count, seed in enumerate(seeds(0), 1):
            talk_to_server(random.Random(seed), address, recorded)
            if count % MEET_EVERY == 0 or count == len(seeds(0)):
                rounds = meet_all(server.address, [member(0, 2), member(1, 2)])
                assert all(isinstance(got, Round) for got in rounds), f"FUZZ_SEED={seed}: {rounds}"
                assert rounds[0] == rounds[1]
            assert not faults, f"FUZZ_SEED={seed}: {faults}"


MEMBERS = [member(0, 2), member(1, 2)]
ROUND = {"generation": 3, "members": MEMBERS, "nonce": "0f" * 16}


def reply(client_nonce: bytes, body: dict[str, Any]) -> bytes:
    text = json.dumps(body)
    mac = server_mac(SECRET, client_nonce, text.encode()).hex()
    return json.dumps({"mac": mac, "body": text}).encode() + b"\n"


def talk_to_client(rng: random.Random, sock: socket.socket) -> None:
    sock.settimeout(10)
    greeting = f"{GREETING} {'ab' * 32}\n".encode()
    kind = rng.randrange(4)
    with contextlib.suppress(OSError):  # the client may be gone at any point
        if kind == 0:
            sock.sendall(damaged(rng, greeting))
        else:
            sock.sendall(greeting)
            nonce = bytes.fromhex(json.loads(read_line(sock))["nonce"])
            bodies: list[dict[str, Any]] = [{"missing": [1]}, {"missing": []}, ROUND]
            if kind == 1:
                rng.shuffle(bodies)
                bodies = [odd(rng, body) for body in bodies]
            answer = b"".join(reply(nonce, body) for body in bodies)
            sock.sendall(answer if kind == 1 else damaged(rng, answer))
        sock.shutdown(socket.SHUT_WR)
        read_to_the_end(sock)


@contextlib.contextmanager
def fuzzing_server() -> Iterator[tuple[tuple[str, int], list[int]]]:
    """Answers each connection by the seed that is last in the list; nothing is damaged twice."""
    current: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                sock, _ = listener.accept()
                with sock:
                    if not current:
                        return
                    talk_to_client(random.Random(current[-1]), sock)

        thread = threading.Thread(target=serve)
        thread.start()
        address = listener.getsockname()
        try:
            yield address, current
        finally:
            current.clear()
            socket.create_connection(address).close()
            thread.join()


def test_the_client_outlives_every_server(faults: list[str]) -> None:
    allowed = (RendezvousError, OSError, rendezvous._NotOurServerError)
    body = json.dumps(member(0, 2))
    believed = 0
    with bounded_memory(), fuzzing_server() as ((host, port), current):
        for seed in seeds(10_000):
            current.append(seed)
            wait = rendezvous._Wait(f"{host}:{port}", 0, 2, 10)
            try:
                got = rendezvous._meet_at(host, port, SECRET, body, wait)
            except allowed:
                continue
            finally:
                assert not faults, f"FUZZ_SEED={seed}: {faults}"
            believed += 1
            signed_by_the_server = random.Random(seed).randrange(4) == 1
            whole = got == Round(3, tuple(MEMBERS), "0f" * 16)
            assert whole or signed_by_the_server, f"FUZZ_SEED={seed}: {got}"
    assert believed < CASES / 2


@pytest.mark.parametrize("seed", range(20_000, 20_010))
def test_meet_gives_up_in_time_with_an_error_of_its_own(seed: int, faults: list[str]) -> None:
    with fuzzing_server() as ((host, port), current):
        current.append(seed)
        with contextlib.suppress(RendezvousError):
            rendezvous.meet(f"{host}:{port}", SECRET, member(0, 2), 0.3)
    assert not faults
