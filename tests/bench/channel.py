"""JSON messages, one a line, between the driver and a rank over a Unix socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

__all__ = ["Channel", "SOCKET", "SPAWNED_S", "connect"]

# Variables of a rank's environment: the socket's path, and the moment of the command
# (CLOCK_MONOTONIC, the same clock in all processes of a machine).
SOCKET = "BENCH_SOCKET"
SPAWNED_S = "BENCH_SPAWNED_S"

_REST_OF_LINE_S = 10.0  # a message is written at once, so its end is never far


class Channel:
    """One end of a connection.  One thread uses it.

    Args:
      connection: a connected stream socket; owned from now on.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._read = b""

    def fileno(self) -> int:
        """The descriptor that becomes readable when a message comes or the other end is gone."""
        return self._connection.fileno()

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends one message.

        Raises:
          OSError: the other end is gone, or has not read for some time.
        """
        self._connection.settimeout(_REST_OF_LINE_S)
        self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, waits: bool = False) -> dict[str, Any] | None:
        """Returns the next message, or None: the other end is gone.

        Args:
          waits: whether it may be long until it begins; else call this once `fileno()` is readable.

        Raises:
          OSError: a message began, or should have, and did not come to its end.
        """
        while b"\n" not in self._read:
            self._connection.settimeout(None if waits and not self._read else _REST_OF_LINE_S)
            try:
                more = self._connection.recv(1 << 16)
            except ConnectionError:
                return None
            if not more:
                return None
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()


def connect(path: str) -> Channel:
    """Returns a channel to the driver that listens at `path`.

    Raises:
      OSError: nobody listens.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return Channel(connection)
