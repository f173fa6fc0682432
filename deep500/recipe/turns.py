"""Take turns with other processes, epoch by epoch: how ``deep500 run A --against B`` keeps its launches apart.

Whoever starts a run may hand it a socket. Before every epoch the run asks for its turn there, and waits; asking again,
or ending, gives the turn back. What is between the epochs (validation, a checkpoint) is within the turn.
"""

from __future__ import annotations

import os
import socket
from typing import Any

from deep500.events import Event

DESCRIPTOR = "DEEP500_TURNS"
"""The environment variable with the number of the socket's file descriptor."""

ASK, GO = b"?", b"!"


class TakeTurns(Event):
    """Waits for its turn before every epoch."""

    def __init__(self, descriptor: int) -> None:
        self.referee = socket.socket(fileno=descriptor)

    def before_epoch(self, run: Any) -> None:
        """Ask, and wait; raises KeyboardInterrupt if who gave turns has ended."""
        try:
            self.referee.send(ASK)
            answer = self.referee.recv(1)
        except ConnectionError:
            answer = b""
        if answer != GO:
            raise KeyboardInterrupt("the process that gave turns has ended")


def turn_listeners(ranks: int) -> list[Event]:
    """The listener of a run that takes turns; none for one that does not, or that has several ranks."""
    descriptor = os.environ.get(DESCRIPTOR)
    return [TakeTurns(int(descriptor))] if descriptor is not None and ranks == 1 else []
