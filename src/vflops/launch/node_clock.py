"""The clock of one node against another's: pings over TCP, the quickest one counts."""

from __future__ import annotations

import queue
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import ClassVar

from vflops.errors import FolderError
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder
from vflops.record.formats.node import Clock

_PINGS = 50
_TIME = struct.Struct("!d")
_AGENT_PINGS = 10
"""Thousands of agents may ask one controller at once."""
_AGENT_LIMIT_S = 2.0


class ClockFile(Document):
    """``clock.json`` of the run: where its controller tells the time."""

    schema_name: ClassVar[str] = "vflops.clock"

    host: str
    port: int


class ClockServer:
    """Tells the time of this machine to who connects, until it is closed or the process ends."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("", 0), backlog=4096)
        self.port: int = self._listening.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no one any more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # or the thread would wait on
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                asking, _ = self._listening.accept()
                Thread(target=self._tell, args=(asking,), daemon=True).start()

    def _tell(self, asking: socket.socket) -> None:
        with asking, suppress(OSError):
            asking.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while asking.recv(1):
                asking.sendall(_TIME.pack(time.time()))


def offset(host: str, port: int, limit_s: float, pings: int = _PINGS) -> Clock:
    """This machine's clock less that of ``host``; a fault where it does not answer.

    A reading was taken at some moment of the round trip, so half of that is the uncertainty.
    """
    best = (float("inf"), 0.0)
    end_s = time.monotonic() + limit_s
    try:
        with socket.create_connection((host, port), timeout=limit_s) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for ping in range(pings):
                if ping and time.monotonic() > end_s:
                    break  # a busy server answered few: they are enough
                asked_s = time.time()
                server.sendall(b"?")
                told_s = _TIME.unpack(server.recv(_TIME.size, socket.MSG_WAITALL))[0]
                answered_s = time.time()
                best = min(best, (answered_s - asked_s, (asked_s + answered_s) / 2 - told_s))
    except (OSError, struct.error) as error:
        fault = f"no connection to {host}, port {port}: {error}"
        return Clock(offset_s=None, uncertainty_s=None, fault=fault)
    return Clock(offset_s=best[1], uncertainty_s=best[0] / 2)


@contextmanager
def served(folder: RunFolder) -> Iterator[None]:
    """Tell the run's jobs the time of this machine; a new controller's clock replaces the last."""
    server = ClockServer()
    path = folder.path / "clock.json"
    try:
        ClockFile(host=socket.gethostname(), port=server.port).write(path)
        yield
    finally:
        server.close()
        with suppress(OSError):
            path.unlink(missing_ok=True)  # who comes later finds nobody, and need not wait


def against_controller(folder: RunFolder) -> tuple[str | None, Clock]:
    """The host whose clock is the run's, and this machine's clock less that; or a fault.

    Jobs of one machine have one clock.
    """
    if folder.record.settings.launch.on == "local":
        return socket.gethostname(), Clock(offset_s=0.0, uncertainty_s=0.0)
    try:
        told = ClockFile.read(folder.path / "clock.json")
    except FolderError as error:
        fault = f"no controller tells the time: {error.message}"
        return None, Clock(offset_s=None, uncertainty_s=None, fault=fault)
    return told.host, _soon(told)


def _soon(told: ClockFile) -> Clock:
    """The reading, but never later than the limit: looking up a name has no limit of its own."""
    answer: queue.SimpleQueue[Clock] = queue.SimpleQueue()
    asking = (told.host, told.port, _AGENT_LIMIT_S, _AGENT_PINGS)
    Thread(target=lambda: answer.put(offset(*asking)), daemon=True).start()
    try:
        return answer.get(timeout=_AGENT_LIMIT_S)
    except queue.Empty:
        fault = f"{told.host}, port {told.port}, did not answer within {_AGENT_LIMIT_S:g} s"
        return Clock(offset_s=None, uncertainty_s=None, fault=fault)
