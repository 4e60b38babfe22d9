"""How the ranks of a job find each other: the wire format, and the client's side.

All ranks meet once per init at a small TCP server.  It does one thing, an
all-gather: each rank gives a member (a JSON object), and once all are there each
rank gets all of them.  Every message is one line of ASCII:

    server -> client   HVD-RENDEZVOUS-1 <server nonce>
    client -> server   {"nonce": <client nonce>, "mac": m, "body": "<member>"}
                       m = HMAC-SHA256(secret, "client" | server nonce | client nonce | body)
    server -> client   {"mac": m, "body": "<reply>"}, any number of them
                       m = HMAC-SHA256(secret, "server" | client nonce | body)

Nonces are 32 random bytes, written in hex as macs are; so a recorded handshake is
worth nothing on the next connection.  A reply holds "missing" (still waiting for
these ranks), "error", or the round: "generation", "members" and "nonce".  A client
whose mac is wrong gets one line {"error": text} without a mac.

Threads: `meet` may be called from any thread; it keeps no state.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

__all__ = [
    "GREETING",
    "MAX_MEMBER_LINE_BYTES",
    "MOST_RANKS",
    "NONCE_BYTES",
    "RendezvousAuthError",
    "RendezvousError",
    "RendezvousTimeoutError",
    "RendezvousVersionError",
    "Round",
    "client_mac",
    "meet",
    "name_ranks",
    "parse_addresses",
    "parse_json_object",
    "server_mac",
]

GREETING = "HVD-RENDEZVOUS-1"
NONCE_BYTES = 32
MAX_MEMBER_LINE_BYTES = 64 * 1024  # from a client; so a stranger costs bounded memory
MOST_RANKS = 1 << 16  # so that a nonsensical size costs bounded memory, too

_MAX_GREETING_BYTES = 256
_ANSWER_WITHIN_S = 10.0  # connect, greeting and first reply; a silent stranger costs this much
_RETRY_FIRST_S = 0.02
_RETRY_MOST_S = 0.5


class RendezvousError(RuntimeError):
    """The ranks could not be brought together; the text says who and why."""


class RendezvousTimeoutError(RendezvousError):
    """The deadline passed; the text names the missing ranks, where they are known."""


class RendezvousAuthError(RendezvousError):
    """The two sides do not share the job's secret."""


class RendezvousVersionError(RendezvousError):
    """The server speaks another version of the protocol."""


@dataclass(frozen=True)
class Round:
    """One completed meeting.

    Attributes:
      generation: 1 for the first round of a job, then 2, 3, ...
      members: what each rank gave, in rank order.
      nonce: 32 hex digits, the same on all ranks and new for each round.
    """

    generation: int
    members: tuple[Mapping[str, Any], ...]
    nonce: str


def meet(address: str, secret: bytes, member: Mapping[str, Any], timeout_s: float) -> Round:
    """Waits until all ranks of the job have come, and returns what each gave.

    Waits inside system calls that a signal ends, so Ctrl-C works.

    Args:
      address: "host:port", "[v6]:port", or several with commas, tried in turn.
      secret: the job's secret, at least 1 byte.
      member: "version", "rank", "size", "local_rank", "local_size", "cross_rank",
        "cross_size", "hostname", "endpoints" (strings), "host_id" and "pid"; must be JSON.
      timeout_s: seconds for everything, retries included.

    Returns:
      The completed round.

    Raises:
      RendezvousTimeoutError: not all ranks came, or no server was reached, in time.
      RendezvousAuthError, RendezvousVersionError: at every address is a server that refused our
        secret, does not know it, or is of another version; the last one's reason.
      RendezvousError: the ranks contradict each other; the text names both values.
      ValueError: an address or the member is malformed.
    """
    candidates = parse_addresses(address)
    body = json.dumps(dict(member))
    wait = _Wait(address, int(member["rank"]), int(member["size"]), timeout_s)
    retry_s = _RETRY_FIRST_S
    while True:
        refused: RendezvousError | None = None
        refusals = 0
        for host, port in candidates:
            try:
                return _meet_at(host, port, secret, body, wait)
            except (RendezvousAuthError, RendezvousVersionError) as error:
                refused, refusals = error, refusals + 1
            except (OSError, _NotOurServerError) as error:
                wait.missing = []
                wait.last_failure = f"{host}:{port}: {error}"
        if refused is not None and refusals == len(candidates):
            raise refused
        wait.check()
        time.sleep(min(retry_s, wait.left_s()))
        retry_s = min(retry_s * 2, _RETRY_MOST_S)


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Splits "host:port,[v6]:port" into (host, port) pairs.

    Args:
      text: one or more addresses with commas between.

    Returns:
      The pairs, in the order given.

    Raises:
      ValueError: an address has no port, or one outside 1 to 65535.
    """
    pairs = []
    for item in text.split(","):
        host, _, port = item.strip().rpartition(":")
        host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"rendezvous address {item!r}: must be host:port or [v6]:port")
        pairs.append((host, int(port)))
    return pairs


def client_mac(secret: bytes, server_nonce: bytes, client_nonce: bytes, body: bytes) -> bytes:
    """Proves to the server that the client knows the secret."""
    return hmac.digest(secret, b"client" + server_nonce + client_nonce + body, hashlib.sha256)


def server_mac(secret: bytes, client_nonce: bytes, body: bytes) -> bytes:
    """Proves to the client that the server knows the secret."""
    return hmac.digest(secret, b"server" + client_nonce + body, hashlib.sha256)


def parse_json_object(line: bytes | str) -> dict[str, Any]:
    """Parses one JSON object from the other side.

    Raises:
      ValueError: anything else, text nested beyond the interpreter's limit included.
    """
    try:
        value = json.loads(line)  # UnicodeDecodeError is a ValueError too
    except RecursionError as error:
        raise ValueError("JSON nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def name_ranks(ranks: list[int], most: int = 8) -> str:
    """Writes "rank 3" or "ranks 1, 2, 3"; of a long list its first `most` and the count."""
    shown = ", ".join(map(str, ranks[:most]))
    if len(ranks) > most:
        shown += f" and {len(ranks) - most} more"
    return f"rank{'s' if len(ranks) != 1 else ''} {shown}"


class _NotOurServerError(Exception):
    """What answers does not speak the protocol, or stopped speaking; worth another try."""


@dataclass
class _Wait:
    """The one deadline of a `meet`, and what to say when it passes."""

    address: str
    rank: int
    size: int
    timeout_s: float
    missing: list[int] = field(default_factory=list)
    last_failure: str = "no attempt was made"

    def __post_init__(self) -> None:
        self._deadline_s = time.monotonic() + self.timeout_s
        # The largest reply holds every member, each quoted once more than it came.
        self.limit_bytes = 2 * MAX_MEMBER_LINE_BYTES * (max(self.size, 0) + 1)

    def left_s(self) -> float:
        return max(0.0, self._deadline_s - time.monotonic())

    def check(self) -> None:
        """Raises RendezvousTimeoutError once the deadline has passed."""
        if self.left_s() > 0:
            return
        who = f"rendezvous at {self.address}: rank {self.rank}"
        if self.missing:
            raise RendezvousTimeoutError(
                f"{who} waited {self.timeout_s:g} s for {name_ranks(self.missing)}; see why they "
                "did not come, or allow more time (HOROVOD_START_TIMEOUT_SECONDS)"
            )
        raise RendezvousTimeoutError(
            f"{who} reached no server within {self.timeout_s:g} s ({self.last_failure}); "
            "see that the launcher is running and can be reached from this host"
        )


def _meet_at(host: str, port: int, secret: bytes, body: str, wait: _Wait) -> Round:
    """One attempt at one address."""
    with socket.create_connection((host, port), _slice_s(wait)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        lines = _Lines(sock)
        greeting = lines.read(_MAX_GREETING_BYTES, _slice_s(wait)).decode("ascii", "replace")
        tag, _, nonce_hex = greeting.partition(" ")
        try:
            server_nonce = bytes.fromhex(nonce_hex)
        except ValueError:
            server_nonce = b""
        if tag != GREETING and re.fullmatch(r"HVD-RENDEZVOUS-\d+", tag):
            raise RendezvousVersionError(
                f"the rendezvous server at {host}:{port} speaks {tag}, this rank {GREETING}; "
                "install one version for the launcher and all ranks"
            )
        if tag != GREETING or len(server_nonce) != NONCE_BYTES:
            raise _NotOurServerError(f"greeted with {greeting[:40]!r}, not as a rendezvous server")
        client_nonce = os.urandom(NONCE_BYTES)
        mac = client_mac(secret, server_nonce, client_nonce, body.encode())
        hello = {"nonce": client_nonce.hex(), "mac": mac.hex(), "body": body}
        sock.settimeout(_slice_s(wait))
        sock.sendall(json.dumps(hello).encode() + b"\n")

        # The first reply comes at once and proves the server; then the wait may be long.
        answer = _verified_reply(lines, secret, client_nonce, wait.limit_bytes, _slice_s(wait))
        while "missing" in answer:
            missing = _understood(answer, lambda reply: [int(rank) for rank in reply["missing"]])
            # Those who never came are the cause, not one whose own time was over before ours.
            wait.missing = [rank for rank in wait.missing if rank in missing] or missing
            try:
                answer = _verified_reply(
                    lines, secret, client_nonce, wait.limit_bytes, wait.left_s()
                )
            except OSError:
                wait.check()  # at the deadline this says who is missing
                raise
    if "error" in answer:
        raise RendezvousError(str(answer["error"]))
    return _understood(answer, _round)


def _round(answer: dict[str, Any]) -> Round:
    members = tuple(dict(member) for member in answer["members"])
    return Round(int(answer["generation"]), members, str(answer["nonce"]))


_Value = TypeVar("_Value")


def _understood(answer: dict[str, Any], read: Callable[[dict[str, Any]], _Value]) -> _Value:
    """Reads an answer of a server that has proved itself, so a fault in it is not a stranger's."""
    try:
        return read(answer)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise RendezvousError(
            f"the rendezvous server answered {str(answer)[:80]}, which this rank does not "
            "understand; install one version for the launcher and all ranks"
        ) from error


def _slice_s(wait: _Wait) -> float:
    """Seconds that one step of a handshake may take."""
    wait.check()
    return min(wait.left_s(), _ANSWER_WITHIN_S)


def _verified_reply(
    lines: _Lines, secret: bytes, client_nonce: bytes, limit_bytes: int, timeout_s: float
) -> dict[str, Any]:
    """Reads one reply and believes it only if its mac is right."""
    line = lines.read(limit_bytes, timeout_s)
    try:
        reply = parse_json_object(line)
        if "mac" not in reply:
            raise RendezvousAuthError(
                f"the rendezvous server refused this rank: {str(reply.get('error'))[:200]}"
            )
        body, mac = str(reply["body"]).encode(), bytes.fromhex(str(reply["mac"]))
    except (ValueError, KeyError) as error:
        raise _NotOurServerError(f"sent a malformed reply ({error})") from error
    if not hmac.compare_digest(mac, server_mac(secret, client_nonce, body)):
        raise RendezvousAuthError(
            "the rendezvous server does not know this job's secret; "
            "see that HOROVOD_RENDEZVOUS_ADDR and HOROVOD_SECRET_KEY belong to one job"
        )
    return _understood(reply, lambda _: parse_json_object(body))


class _Lines:
    """Reads lines of bounded length from a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._buffer = bytearray()

    def read(self, limit_bytes: int, timeout_s: float) -> bytes:
        """Returns the next line without its newline.

        Raises:
          OSError: no whole line came within `timeout_s`.
          _NotOurServerError: the other side closed, or the line is too long.
        """
        deadline_s = time.monotonic() + timeout_s
        searched = 0
        while True:
            end = self._buffer.find(b"\n", searched)
            if end >= 0:
                line = bytes(self._buffer[:end])
                del self._buffer[: end + 1]
                return line
            searched = len(self._buffer)
            if searched > limit_bytes:
                raise _NotOurServerError(f"sent a line of more than {limit_bytes} bytes")
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("no answer in time")
            self._sock.settimeout(left_s)
            data = self._sock.recv(65536)
            if not data:
                raise _NotOurServerError("closed the connection")
            self._buffer += data
