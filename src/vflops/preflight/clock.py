"""The clock of one node against another's: pings over TCP, the quickest one counts."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from threading import Thread

from vflops.preflight.record import Clock

_PINGS = 50
_TIME = struct.Struct("!d")


class ClockServer:
    """Tells the time of this machine to who connects, as long as the process lives."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("", 0), backlog=4096)
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            asking, _ = self._listening.accept()
            Thread(target=self._tell, args=(asking,), daemon=True).start()

    def _tell(self, asking: socket.socket) -> None:
        with asking, suppress(OSError):
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while asking.recv(1):
                asking.sendall(_TIME.pack(time.time()))


def offset(host: str, port: int, limit_s: float) -> Clock:
    """This machine's clock less that of ``host``; a fault where it does not answer.

    A reading was taken at some moment of the round trip, so half of that is the uncertainty.
    """
    best = (float("inf"), 0.0)
    try:
        with socket.create_connection((host, port), timeout=limit_s) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(_PINGS):
                asked_s = time.time()
                server.sendall(b"?")
                told_s = _TIME.unpack(server.recv(_TIME.size, socket.MSG_WAITALL))[0]
                answered_s = time.time()
                best = min(best, (answered_s - asked_s, (asked_s + answered_s) / 2 - told_s))
    except (OSError, struct.error) as error:
        fault = f"no connection to {host}, port {port}: {error}"
        return Clock(offset_s=None, uncertainty_s=None, fault=fault)
    return Clock(offset_s=best[1], uncertainty_s=best[0] / 2)
