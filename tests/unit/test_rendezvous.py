"""The rendezvous: the rules by table, the server over real sockets, and strangers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horovod.common import rendezvous
from horovod.common.rendezvous import (
    GREETING,
    MAX_MEMBER_LINE_BYTES,
    RendezvousAuthError,
    RendezvousError,
    RendezvousTimeoutError,
    RendezvousVersionError,
    client_mac,
    meet,
    name_ranks,
    parse_addresses,
)
from horovod.runner import rendezvous_server
from horovod.runner.rendezvous_round import Gathering, malformed
from horovod.runner.rendezvous_server import RendezvousServer

SECRET = b"0123456789abcdef"


def member(rank, size, **changes):
    return {
        "version": "0.29.0",
        "rank": rank,
        "size": size,
        "local_rank": rank,
        "local_size": size,
        "cross_rank": 0,
        "cross_size": 1,
        "hostname": "here",
        "endpoints": [f"tcp://{rank}"],
        "host_id": "a",
        "pid": 1000 + rank,
        **changes,
    }


def meet_all(address, members, secret=SECRET, timeout_s=20.0):
    """Each member in a thread of its own; returns rounds or errors, in the order given."""
    outcomes = [None] * len(members)

    def one(index):
        try:
            outcomes[index] = meet(address, secret, members[index], timeout_s)
        except RendezvousError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=one, args=(index,)) for index in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


@pytest.fixture
def server():
    with RendezvousServer(SECRET) as running:
        yield running


def connect(server):
    """A raw connection; returns it as a file and the server's nonce."""
    [(host, port)] = parse_addresses(server.address)
    sock = socket.create_connection((host, port), 10)
    file = sock.makefile("rwb")
    tag, nonce = file.readline().split()
    assert tag.decode() == GREETING
    sock.close()  # the file keeps it open
    return file, bytes.fromhex(nonce.decode())


def hello(server_nonce, who, secret=SECRET):
    body, nonce = json.dumps(who), os.urandom(32)
    mac = client_mac(secret, server_nonce, nonce, body.encode())
    return json.dumps({"nonce": nonce.hex(), "mac": mac.hex(), "body": body}).encode() + b"\n"


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_every_rank_gets_every_member_in_rank_order(server, size):
    members = [member(rank, size) for rank in reversed(range(size))]
    rounds = meet_all(server.address, members)
    for got in rounds:
        assert got.generation == 1
        assert [m["rank"] for m in got.members] == list(range(size))
        assert [m["endpoints"] for m in got.members] == [[f"tcp://{r}"] for r in range(size)]
    assert len({got.nonce for got in rounds}) == 1 and len(rounds[0].nonce) == 32


def test_rounds_are_numbered_and_differ(server):
    seen = set()
    for generation in range(1, 21):
        rounds = meet_all(server.address, [member(0, 2), member(1, 2)])
        assert [got.generation for got in rounds] == [generation, generation]
        seen.add(rounds[0].nonce)
    assert len(seen) == 20


def test_ipv6_and_several_candidates():
    try:
        server = RendezvousServer(SECRET, bind="::1")
    except OSError:
        pytest.skip("no IPv6 here")
    with server:
        assert server.address.startswith("[::1]:")
        got = meet(f"127.0.0.1:1,{server.address}", SECRET, member(0, 1), 10)
        assert got.generation == 1


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (member(0, 2), member(0, 2, pid=7), ["two living processes are rank 0", "7", "1000"]),
        (member(0, 2), member(1, 3), ["rank 0", "size 2", "rank 1", "size 3"]),
        (member(0, 2), member(1, 2, version="0.30.0"), ["rank 0", "0.29.0", "rank 1", "0.30.0"]),
        (member(0, 2), member(2, 2), ["rank 2", "below the size, 2"]),
        (member(0, 2), member(-1, 2), ["rank -1", "at least 0"]),
    ],
    ids=["same rank", "sizes", "versions", "rank too large", "rank negative"],
)
def test_a_contradiction_ends_the_wait_of_all_and_names_both(server, first, second, words):
    file, nonce = connect(server)
    file.write(hello(nonce, first))
    file.flush()
    assert "missing" in file.readline().decode()  # it waits before the second comes
    [error] = meet_all(server.address, [second])
    assert type(error) is RendezvousError
    assert json.loads(json.loads(file.readline())["body"]) == {"error": str(error)}
    file.close()
    for word in words:
        assert word in str(error)
    # and the next round works
    assert all(r.generation == 1 for r in meet_all(server.address, [member(0, 2), member(1, 2)]))


def test_the_launcher_knows_the_size():
    with RendezvousServer(SECRET, 3) as server:
        [error] = meet_all(server.address, [member(0, 2)])
        assert "size 2" in str(error) and "3 ranks" in str(error)


@pytest.mark.parametrize(
    "changes",
    [
        {"size": 1 << 62},
        {"pid": "x"},
        {"rank": True},
        {"rank": None},
        {"endpoints": "a"},
        {"endpoints": [1]},
    ],
    ids=str,
)
def test_a_malformed_member_is_refused_by_field(server, changes):
    good = member(0, 1)
    fault = malformed({**good, **changes})
    assert fault is not None and next(iter(changes)) in fault
    file, nonce = connect(server)
    file.write(hello(nonce, {**good, **changes}))
    file.flush()
    assert next(iter(changes)) in json.loads(json.loads(file.readline())["body"])["error"]
    file.close()


def test_a_wrong_secret_is_said_and_fails_at_once(server):
    start_s = time.monotonic()
    with pytest.raises(RendezvousAuthError, match="wrong secret"):
        meet(server.address, b"another", member(0, 1), 30)
    assert time.monotonic() - start_s < 15
    assert meet(server.address, SECRET, member(0, 1), 30).generation == 1


def test_a_server_without_the_secret_is_not_believed(server, monkeypatch):
    real = rendezvous_server.server_mac
    monkeypatch.setattr(rendezvous_server, "server_mac", lambda _, *rest: real(b"another", *rest))
    with pytest.raises(RendezvousAuthError, match="does not know this job's secret"):
        meet(server.address, SECRET, member(0, 1), 10)


def test_a_replayed_hello_is_refused(server):
    file, nonce = connect(server)
    recorded = hello(nonce, member(0, 2))
    file.write(recorded)
    file.flush()
    assert "missing" in file.readline().decode()
    again, _ = connect(server)
    again.write(recorded)
    again.flush()
    assert "wrong secret" in again.readline().decode()
    assert again.readline() == b""
    again.close()
    file.close()


@pytest.mark.parametrize(
    "line",
    [b"\n", b"hi\n", b"{}\n", b"[1]\n", b"\xff\xfe\n", b'{"nonce": 1, "mac": 2, "body": 3}\n',
     b"[" * 60000 + b"\n", b"x" * (MAX_MEMBER_LINE_BYTES + 2)],
    ids=["empty", "text", "no fields", "array", "not utf-8", "wrong types", "deep", "too long"],
)  # fmt: skip
def test_nonsense_is_refused_and_changes_nothing(server, line):
    file, _ = connect(server)
    file.write(line)
    file.flush()
    try:
        assert "error" in json.loads(file.readline())
    except ConnectionResetError:
        assert len(line) > MAX_MEMBER_LINE_BYTES  # it closed with bytes unread
    file.close()
    assert meet(server.address, SECRET, member(0, 1), 30).generation == 1


@settings(max_examples=50, deadline=None)
@given(data=st.binary(max_size=300))
def test_fuzz_bytes_never_end_the_server(fuzzed_server, data):
    file, _ = connect(fuzzed_server)
    file.write(data + b"\n")
    file.flush()
    assert b"error" in file.readline()
    file.close()


@pytest.fixture(scope="module")
def fuzzed_server():
    with RendezvousServer(SECRET) as running:
        yield running
        assert meet(running.address, SECRET, member(0, 1), 30).generation == 1


def test_strangers_do_not_keep_ranks_out(server):
    strangers = [connect(server)[0] for _ in range(rendezvous_server._MAX_PENDING)]
    rounds = meet_all(server.address, [member(0, 2), member(1, 2)])
    assert [got.generation for got in rounds] == [1, 1]
    for file in strangers:
        file.close()


def test_a_silent_stranger_is_dropped(monkeypatch):
    monkeypatch.setattr(rendezvous_server, "_HANDSHAKE_S", 0.2)
    with RendezvousServer(SECRET) as server:
        file, _ = connect(server)
        assert file.readline() == b""
        file.close()


def test_one_who_leaves_while_waiting_is_forgotten(server):
    file, nonce = connect(server)
    file.write(hello(nonce, member(0, 2, pid=7)))
    file.flush()
    file.readline()
    file.close()
    rounds = meet_all(server.address, [member(0, 2), member(1, 2)])
    assert [m["pid"] for m in rounds[0].members] == [1000, 1001]


def test_the_timeout_names_the_missing_ranks(server):
    for error in meet_all(server.address, [member(0, 4), member(2, 4)], timeout_s=3):
        assert type(error) is RendezvousTimeoutError
        assert "ranks 1, 3" in str(error)


def test_the_timeout_names_those_who_never_came_rather_than_one_who_left(server):
    file, nonce = connect(server)
    file.write(hello(nonce, member(2, 4)))
    file.flush()
    file.readline()
    leave = threading.Timer(1.5, file.close)
    leave.start()
    [error] = meet_all(server.address, [member(0, 4)], timeout_s=4)
    leave.join()
    assert "ranks 1, 3" in str(error)


def test_a_server_that_never_comes_is_named():
    with pytest.raises(RendezvousTimeoutError, match="rank 0 reached no server"):
        meet("127.0.0.1:1", SECRET, member(0, 1), 0.3)


def test_a_server_that_comes_late_is_found(monkeypatch):
    with RendezvousServer(SECRET) as early:
        address = early.address
    [(_, port)] = parse_addresses(address)
    make = socket.create_server
    at_that_port = lambda at, **options: make((at[0], port), **options)  # noqa: E731
    started = []

    def start_late():
        time.sleep(0.3)
        started.append(RendezvousServer(SECRET))

    monkeypatch.setattr(socket, "create_server", at_that_port)
    thread = threading.Thread(target=start_late)
    thread.start()
    try:
        assert meet(address, SECRET, member(0, 1), 30).generation == 1
    finally:
        thread.join()
        started[0].close()


def test_ctrl_c_ends_the_wait(server):
    code = f"""
import signal, sys
from horovod.common.rendezvous import meet
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
print("ready", flush=True)
try:
    meet({server.address!r}, {SECRET!r}, {member(0, 2)!r}, 60)
except KeyboardInterrupt:
    sys.exit(7)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 7


def test_the_client_gives_up_on_a_server_that_says_nothing(monkeypatch):
    monkeypatch.setattr(rendezvous, "_ANSWER_WITHIN_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(RendezvousTimeoutError, match="reached no server"):
            meet(address, SECRET, member(0, 1), 1)


def test_a_server_of_another_version_is_named_unless_another_address_helps(server):
    with socket.create_server(("127.0.0.1", 0)) as newer:

        def greet():
            for _ in range(2):
                client, _ = newer.accept()
                client.sendall(b"HVD-RENDEZVOUS-2 " + b"00" * 32 + b"\n")
                client.close()

        thread = threading.Thread(target=greet)
        thread.start()
        address = f"127.0.0.1:{newer.getsockname()[1]}"
        with pytest.raises(RendezvousVersionError, match=r"HVD-RENDEZVOUS-2.*HVD-RENDEZVOUS-1"):
            meet(address, SECRET, member(0, 1), 30)
        assert meet(f"{address},{server.address}", SECRET, member(0, 1), 30).generation == 1
        thread.join()


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("h:1", [("h", 1)]),
        ("[::1]:65535, 10.0.0.1:2", [("::1", 65535), ("10.0.0.1", 2)]),
    ],
)
def test_addresses(text, pairs):
    assert parse_addresses(text) == pairs


@pytest.mark.parametrize("text", ["", "h", "h:", ":1", "h:0", "h:65536", "h:x", "a:1,"])
def test_bad_addresses(text):
    with pytest.raises(ValueError, match="must be host:port"):
        parse_addresses(text)


def test_an_empty_secret_is_refused():
    with pytest.raises(ValueError, match="secret"):
        RendezvousServer(b"")


def test_gathering_counts():
    gathering = Gathering()
    assert gathering.missing() == [] and not gathering.complete()
    here = member(1, 3)
    gathering.add(here)
    assert gathering.missing() == [0, 2]
    gathering.remove(member(1, 3))  # an equal one is not the same one
    assert gathering.missing() == [0, 2]
    gathering.remove(here)
    assert gathering.missing() == []


def gathered(size, *ranks):
    gathering = Gathering(size)
    for rank in ranks:
        gathering.add(member(rank, size))
    return gathering


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        ({}, None),
        ({0: 1}, None),  # it is here: its connection says whether it still waits
        ({7: 0}, None),
        ({1: 0}, "rank 1 ended before init() and cannot come (rank 1: exit code 0); ranks 0, 2"),
        ({3: -9, 1: 4}, "ranks 1, 3 ended before init() and cannot come (rank 1: exit code 4; "),
    ],
    ids=str,
)
def test_gathering_knows_who_can_come_no_more(ended, words):
    gathering = gathered(4, 0, 2)
    for rank, status in ended.items():
        gathering.end(rank, status)
    if words is None:
        assert gathering.hopeless() is None
    else:
        assert words in gathering.hopeless()


def test_gathering_blames_who_ended_first_and_forgets_who_came_again():
    gathering = gathered(3, 0)
    gathering.end(1, 0)
    gathering.fail()
    gathering.end(0, 1)  # because it was told
    gathering.add(member(2, 3))
    assert "rank 1 ended before" in gathering.hopeless()
    gathering.fail()
    gathering.add(member(1, 3))
    assert "rank 0 ended before init()" in gathering.hopeless()
    gathering.add(member(0, 3))
    assert gathering.hopeless() is None
    gathering.add(member(2, 3))
    assert [m["rank"] for m in gathering.finish()] == [0, 1, 2]
    gathering.end(2, 0)
    gathering.add(member(0, 3))
    assert "rank 2 ended after an earlier init()" in gathering.hopeless()


@pytest.mark.parametrize("when", ["before", "while it waits"])
def test_who_waits_for_a_rank_that_ended_is_told_at_once(server, when):
    if when == "before":
        server.rank_ended(1, 1001, -9)
    else:
        threading.Timer(0.5, server.rank_ended, (1, 1001, -9)).start()
    begin_s = time.monotonic()
    [error] = meet_all(server.address, [member(0, 2)], timeout_s=60)
    assert time.monotonic() - begin_s < 10
    assert "rank 1: killed by SIGKILL (signal 9)" in str(error)
    file, nonce = connect(server)
    file.write(hello(nonce, member(1, 2)))  # it was started again after all
    file.flush()
    assert "missing" in file.readline().decode()
    assert meet_all(server.address, [member(0, 2)])[0].generation == 1
    file.close()


def test_an_ended_rank_whose_child_holds_its_connection_is_not_waiting(server):
    file, nonce = connect(server)
    file.write(hello(nonce, member(1, 2)))
    file.flush()
    assert "missing" in file.readline().decode()
    server.rank_ended(1, 1001, 3)
    [error] = meet_all(server.address, [member(0, 2)], timeout_s=60)
    assert "rank 1: exit code 3" in str(error)
    file.close()


def test_name_ranks():
    assert name_ranks([3]) == "rank 3"
    assert name_ranks([1, 2]) == "ranks 1, 2"
    assert name_ranks(list(range(10)), most=2) == "ranks 0, 1 and 8 more"
