"""What the machine itself allows: copying memory, waking a process, a wire between two hosts."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator

from tests.bench.command import output_of
from tests.bench.errors import BenchError, Unavailable
from tests.bench.native import program

__all__ = ["Unavailable", "futex_ping_pong", "memcpy", "received_bytes_per_s", "wire"]

_PATIENCE_S = 60.0  # beyond the measured time
_COMMAND_S = 10.0
_SERVER_STARTS_S = 5.0
_POLL_S = 0.1
_TAIL_CHARS = 500
_WARM_UP_S = 1  # TCP's slow start, which iperf3 leaves out
_NETWORK = "198.18.0"  # RFC 2544: for benchmarks; nobody outside the two namespaces sees it


def memcpy(seconds: float) -> float:
    """Copies 64 MiB in each of two processes at once, again and again.

    Returns:
      Bytes copied per second, of the slower process; from the median copy.

    Raises:
      Unavailable: the program is not built.
      BenchError: it failed.
    """
    rates = output_of([str(program("memcpy_pair")), str(seconds)], seconds + _PATIENCE_S).split()
    return min(float(rate) for rate in rates)


def futex_ping_pong(seconds: float) -> float:
    """Lets two processes wake each other; only round trips in which both slept count.

    Returns:
      Seconds per round trip, the median.

    Raises:
      Unavailable: the program is not built.
      BenchError: it failed.
    """
    output = output_of([str(program("futex_pair")), str(seconds)], seconds + _PATIENCE_S)
    return float(output)


def wire(seconds: int = 4) -> float:
    """Sends by one TCP connection between two network namespaces, as between two hosts.

    Args:
      seconds: how long, after a first second that does not count.

    Returns:
      Bytes per second that the receiver got.

    Raises:
      Unavailable: no iperf3, no `ip`, not root, or no right to make namespaces.
      BenchError: iperf3 failed, or something of it was left behind.
    """
    for tool, package in (("ip", "iproute2"), ("iperf3", "iperf3")):
        if shutil.which(tool) is None:
            raise Unavailable(f"no {tool} here; install Debian's package {package}")
    if os.geteuid() != 0:
        raise Unavailable("only root can make network namespaces")
    with _two_namespaces() as (here, there), _server(there):
        return _received(here, seconds)


@contextlib.contextmanager
def _two_namespaces() -> Iterator[tuple[str, str]]:
    """Makes two namespaces joined by a cable, the first with address .1, the second with .2."""
    names = tuple(f"bench-{os.getpid()}-{end}" for end in "ab")
    made: list[str] = []
    try:
        try:
            for name in names:
                _ip("netns", "add", name)
                made.append(name)
            link = ("name", "wire", "netns", names[0])
            _ip("link", "add", *link, "type", "veth", "peer", "name", "wire", "netns", names[1])
            for number, name in enumerate(names, 1):
                _ip("-n", name, "addr", "add", f"{_NETWORK}.{number}/30", "dev", "wire")
                _ip("-n", name, "link", "set", "wire", "up")
        except BenchError as error:
            raise Unavailable(f"no right to make network namespaces: {error}") from error
        yield names[0], names[1]
    finally:
        _delete(made)


def _delete(names: list[str]) -> None:
    """Deletes namespaces, and with them the cable; the error of one keeps none of the others."""
    errors = []
    for name in names:
        try:
            _ip("netns", "delete", name)
        except BenchError as error:
            errors.append(str(error))
    if errors:
        raise BenchError("; ".join(errors))


def _ip(*arguments: str) -> None:
    output_of(["ip", *arguments], _COMMAND_S)


@contextlib.contextmanager
def _server(namespace: str) -> Iterator[None]:
    command = ["ip", "netns", "exec", namespace, "iperf3", "--server", "--one-off"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait(_COMMAND_S)


def _received(namespace: str, seconds: int) -> float:
    """Runs the client, again while the server does not listen yet; returns bytes per second."""
    command = ["ip", "netns", "exec", namespace, "iperf3", "--client", f"{_NETWORK}.2", "--json"]
    command += ["--time", str(seconds), "--omit", str(_WARM_UP_S)]
    deadline_s = time.monotonic() + _SERVER_STARTS_S
    while True:
        # Its errors are in the JSON, with exit status 0 or 1.
        ended = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds + _WARM_UP_S + _PATIENCE_S,
        )
        try:
            return received_bytes_per_s(ended.stdout)
        except BenchError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(_POLL_S)


def received_bytes_per_s(output: str) -> float:
    """Reads what iperf3's client prints with --json.

    Raises:
      BenchError: it says that it failed, or says something else.
    """
    try:
        result = json.loads(output)
        if "error" not in result:
            return float(result["end"]["sum_received"]["bits_per_second"]) / 8
        raise BenchError(f"iperf3: {result['error']}")
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(f"iperf3 printed no result: {output[:_TAIL_CHARS]!r}") from error
