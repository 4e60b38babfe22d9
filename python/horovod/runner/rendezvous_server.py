"""The server at which the ranks of a job meet; horovod/common/rendezvous.py has the protocol.

Threads: one thread of its own does everything; the constructor, `rank_ended` and `close`
may be called from any one thread.  Strangers cost bounded memory and change nothing: at
most _MAX_PENDING connections have not proved the secret, each holds at most one
line of MAX_MEMBER_LINE_BYTES, and each ends after _HANDSHAKE_S.
"""

from __future__ import annotations

import collections
import contextlib
import hmac
import json
import os
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from horovod.common.rendezvous import (
    GREETING,
    MAX_MEMBER_LINE_BYTES,
    NONCE_BYTES,
    client_mac,
    parse_json_object,
    server_mac,
)
from horovod.runner.rendezvous_round import Gathering, Member, malformed

__all__ = ["RendezvousServer"]

_MAX_PENDING = 64
_PENDING_MAY_BE_DROPPED_AFTER_S = 1.0  # when the places are full and others want one
_ACCEPT_PAUSE_S = 0.25
_HANDSHAKE_S = 10.0
_PROGRESS_EVERY_S = 0.5
_BACKLOG = 1024


class RendezvousServer:
    """Serves rounds until it is closed.

    Args:
      secret: the job's secret; whoever knows it is a rank.
      size: number of ranks, which each must agree with; None: the first of a round decides.
      bind: the local address to listen on; the port is any free one.

    Raises:
      ValueError: the secret is empty.
      OSError: the address cannot be listened on.
    """

    def __init__(self, secret: bytes, size: int | None = None, bind: str = "127.0.0.1") -> None:
        if not secret:
            raise ValueError("rendezvous: the secret must not be empty")
        self._secret = secret
        self._gathering = Gathering(size)
        self._generation = 0
        self._peers: set[_Peer] = set()
        self._ended: collections.deque[tuple[int, int, int]] = collections.deque()
        self._accept_again_s: float | None = None
        self._progress_due_s: float | None = None
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._listener = socket.create_server((bind, 0), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        port = self._listener.getsockname()[1]
        self._address = f"[{bind}]:{port}" if ":" in bind else f"{bind}:{port}"
        self._closing = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_in, selectors.EVENT_READ)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="hvd-rendezvous", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where ranks find the server: "host:port" or "[v6]:port"."""
        return self._address

    def __enter__(self) -> RendezvousServer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the thread and closes every connection.  Idempotent."""
        if self._thread.is_alive():
            self._closing = True
            self._wake_out.send(b"x")
            self._thread.join()
        self._wake_out.close()
        self._wake_in.close()

    def rank_ended(self, rank: int, pid: int, status: int) -> None:
        """Says that the process of a rank has ended: whoever waits for it is told at once.

        REQUIRES: not closed.

        Args:
          rank: its number.
          pid: its process; if it is itself among those who wait, it is forgotten.
          status: the exit code, or minus the signal.
        """
        self._ended.append((rank, pid, status))
        self._wake_out.send(b"x")

    # Everything below runs on the server's thread.

    def _serve(self) -> None:
        try:
            while not self._closing:
                for key, _ in self._selector.select(self._sleep_s()):
                    if key.fileobj is self._wake_in:
                        self._wake_in.recv(4096)
                    elif key.fileobj is self._listener:
                        self._accept()
                    elif key.data in self._peers:  # not closed by an earlier event of this batch
                        self._serve_peer(key.data)
                self._keep_times()
                self._note_ended()
                self._report_progress()
        finally:
            for peer in list(self._peers):
                self._drop(peer)
            self._selector.close()
            self._listener.close()

    def _sleep_s(self) -> float | None:
        times = [peer.deadline_s for peer in self._peers if peer.deadline_s is not None]
        if self._progress_due_s is not None:
            times.append(self._progress_due_s)
        if self._accept_again_s is not None:
            times.append(self._accept_again_s)
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _pause_accepting(self) -> None:
        """Leaves new connections in the kernel's backlog for a moment."""
        self._selector.unregister(self._listener)
        self._accept_again_s = time.monotonic() + _ACCEPT_PAUSE_S

    def _accept(self) -> None:
        if not self._has_place():
            self._pause_accepting()
            return
        try:
            sock, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError:  # out of descriptors, or the client is gone already
            self._pause_accepting()
            return
        sock.setblocking(False)
        peer = _Peer(sock)
        self._peers.add(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)
        peer.out += f"{GREETING} {peer.server_nonce.hex()}\n".encode()
        self._flush(peer)

    def _has_place(self) -> bool:
        pending = [peer for peer in self._peers if peer.member is None]
        if len(pending) < _MAX_PENDING:
            return True
        oldest = min(pending, key=lambda peer: peer.born_s)
        if time.monotonic() - oldest.born_s < _PENDING_MAY_BE_DROPPED_AFTER_S:
            return False
        self._drop(oldest)
        return True

    def _serve_peer(self, peer: _Peer) -> None:
        if peer.out:
            self._flush(peer)
        if peer not in self._peers:
            return
        try:
            data = peer.sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(peer)
        elif peer.member is None and not peer.closing:
            peer.line += data
            self._read_hello(peer)
        # What comes after the hello has no meaning and is thrown away.

    def _read_hello(self, peer: _Peer) -> None:
        line, newline, _ = peer.line.partition(b"\n")
        if not newline and len(line) <= MAX_MEMBER_LINE_BYTES:
            return
        peer.line = bytearray()
        if len(line) > MAX_MEMBER_LINE_BYTES:
            self._refuse(peer, f"a member may have {MAX_MEMBER_LINE_BYTES} bytes, this has more")
            return
        try:
            hello = parse_json_object(bytes(line))
            client_nonce = bytes.fromhex(str(hello["nonce"]))
            mac = bytes.fromhex(str(hello["mac"]))
            body = str(hello["body"]).encode()
        except (ValueError, KeyError):
            self._refuse(peer, "the hello is malformed")
            return
        expected = client_mac(self._secret, peer.server_nonce, client_nonce, body)
        if len(client_nonce) != NONCE_BYTES or not hmac.compare_digest(mac, expected):
            self._refuse(
                peer,
                "wrong secret; see that HOROVOD_RENDEZVOUS_ADDR and HOROVOD_SECRET_KEY "
                "belong to one job",
            )
            return
        peer.client_nonce = client_nonce
        try:
            member = parse_json_object(body)
            fault = malformed(member)
        except ValueError as error:
            fault = f"rendezvous: the member is malformed ({error})"
        if fault:
            self._answer(peer, {"error": fault})
        else:
            self._join(peer, member)

    def _join(self, peer: _Peer, member: Member) -> None:
        for other in self._waiting():
            # Not two living processes if the first is gone, or has come again itself.
            if other.member is not None and other.member["rank"] == member["rank"]:
                same = all(other.member[key] == member[key] for key in ("host_id", "pid"))
                if same or _is_closed(other.sock):
                    self._drop(other)
        fault = self._gathering.conflict(member)
        if fault:
            self._fail_round(fault, peer)
            return
        self._gathering.add(member)
        peer.member = member
        peer.deadline_s = None  # the client has the deadline from here on; its end closes
        if self._gathering.complete():
            self._complete()
        else:
            self._send(peer, {"missing": self._gathering.missing()})
            if self._progress_due_s is None:
                self._progress_due_s = time.monotonic() + _PROGRESS_EVERY_S

    def _complete(self) -> None:
        self._generation += 1
        answer = {
            "generation": self._generation,
            "members": self._gathering.finish(),
            "nonce": os.urandom(16).hex(),
        }
        for waiting in self._waiting():
            self._answer(waiting, answer)
        self._progress_due_s = None

    def _fail_round(self, why: str, *others: _Peer) -> None:
        """Tells everyone who waits, and `others`, why the round cannot complete."""
        for peer in [*self._waiting(), *others]:
            self._answer(peer, {"error": why})
        self._gathering.fail()
        self._progress_due_s = None

    def _note_ended(self) -> None:
        while self._ended:
            rank, pid, status = self._ended.popleft()
            self._gathering.end(rank, status)
            for peer in self._waiting():  # a child may hold its connection open
                if peer.member and (peer.member["rank"], peer.member["pid"]) == (rank, pid):
                    self._drop(peer)
        why = self._gathering.hopeless()
        if why:
            self._fail_round(why)

    def _report_progress(self) -> None:
        """Tells those who wait who is missing, so that their time-out can name them."""
        now_s = time.monotonic()
        if self._progress_due_s is None or now_s < self._progress_due_s:
            return
        waiting, missing = self._waiting(), self._gathering.missing()
        for peer in waiting:
            if peer.reported != missing and not peer.out:
                self._send(peer, {"missing": missing})
        self._progress_due_s = now_s + _PROGRESS_EVERY_S if waiting else None

    def _waiting(self) -> list[_Peer]:
        return [peer for peer in self._peers if peer.member is not None and not peer.closing]

    def _keep_times(self) -> None:
        now_s = time.monotonic()
        for peer in list(self._peers):
            if peer.deadline_s is not None and now_s >= peer.deadline_s:
                self._drop(peer)
        if self._accept_again_s is not None and now_s >= self._accept_again_s:
            self._accept_again_s = None
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _refuse(self, peer: _Peer, why: str) -> None:
        """Ends a connection that has not proved the secret."""
        peer.out += json.dumps({"error": why}).encode() + b"\n"
        peer.closing = True
        self._flush(peer)

    def _answer(self, peer: _Peer, body: Mapping[str, Any]) -> None:
        """Sends the last message of a connection."""
        peer.closing = True
        peer.deadline_s = time.monotonic() + _HANDSHAKE_S
        self._send(peer, body)

    def _send(self, peer: _Peer, body: Mapping[str, Any]) -> None:
        text = json.dumps(body)
        mac = server_mac(self._secret, peer.client_nonce, text.encode())
        peer.out += json.dumps({"mac": mac.hex(), "body": text}).encode() + b"\n"
        peer.reported = body.get("missing")
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        try:
            while peer.out:
                del peer.out[: peer.sock.send(peer.out)]
        except BlockingIOError:
            pass
        except OSError:
            self._drop(peer)
            return
        if peer.closing and not peer.out:
            self._drop(peer)
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
        self._selector.modify(peer.sock, events, peer)

    def _drop(self, peer: _Peer) -> None:
        if peer not in self._peers:
            return
        self._peers.discard(peer)
        self._selector.unregister(peer.sock)
        peer.sock.close()
        if peer.member is not None and not peer.closing:
            self._gathering.remove(peer.member)


class _Peer:
    """One connection.  `member` is None until it has proved the secret."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.server_nonce = os.urandom(NONCE_BYTES)
        self.client_nonce = b""
        self.member: Member | None = None
        self.line = bytearray()
        self.out = bytearray()
        self.reported: list[int] | None = None  # the missing ranks it was told last
        self.closing = False  # ends once `out` is sent
        self.born_s = time.monotonic()
        self.deadline_s: float | None = self.born_s + _HANDSHAKE_S


def _is_closed(sock: socket.socket) -> bool:
    """Tells whether the other side has closed, though the event has not been served yet."""
    with contextlib.suppress(BlockingIOError):
        try:
            return not sock.recv(1, socket.MSG_PEEK)
        except ConnectionError:
            return True
    return False
