"""Which hosts a job runs on: reading -H and --hostfile.

For now every host must be this one; the errors say so.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import NamedTuple

__all__ = ["Host", "HostsError", "only_local", "parse_hostfile", "parse_hosts"]

_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.%]+\]|[^\s:\[\],]+)(:(?P<slots>\d+))?")
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class HostsError(ValueError):
    """A list of hosts that cannot be read, or cannot be used yet."""


class Host(NamedTuple):
    """One host and how many ranks it takes."""

    name: str
    slots: int


def parse_hosts(text: str) -> list[Host]:
    """Reads "h1:2,h2:2"; without a number a host takes one rank.

    Args:
      text: the value of -H.

    Returns:
      The hosts in order.

    Raises:
      HostsError: an item is malformed or has no slot.
    """
    return [_host(item.strip(), "-H") for item in text.split(",")]


def parse_hostfile(path: str) -> list[Host]:
    """Reads a file of lines "name slots=N" or "name:N"; "#" begins a comment.

    Args:
      path: the value of --hostfile.

    Returns:
      The hosts in order.

    Raises:
      HostsError: the file cannot be read, a line is malformed, or there is none.
    """
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostsError(f"--hostfile {path}: cannot be read ({error})") from error
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            item = ":".join(re.sub("^slots=", "", word) for word in words)
            hosts.append(_host(item, f"--hostfile {path}, line {number}"))
    if not hosts:
        raise HostsError(f"--hostfile {path}: has no host; write lines such as 'localhost slots=2'")
    return hosts


def only_local(hosts: list[Host]) -> Host:
    """Returns the one host if it is this one.

    Raises:
      HostsError: there are several, or it is another one.
    """
    if len(hosts) > 1:
        names = ", ".join(host.name for host in hosts)
        raise HostsError(f"several hosts ({names}): not built yet; use one, e.g. -H localhost:2")
    host = hosts[0]
    if host.name not in _LOCAL and host.name not in (socket.gethostname(), socket.getfqdn()):
        raise HostsError(
            f"host {host.name!r} is not this one ({socket.gethostname()}): starting ranks by ssh "
            "is not built yet; use localhost"
        )
    return host


def _host(item: str, where: str) -> Host:
    match = _HOST.fullmatch(item)
    if match is None:
        raise HostsError(f"{where}: {item!r} must be host:slots, e.g. localhost:2")
    slots = int(match["slots"] or 1)
    if slots < 1:
        raise HostsError(f"{where}: {item!r} has no slot; the number must be at least 1")
    return Host(match["name"].strip("[]"), slots)
