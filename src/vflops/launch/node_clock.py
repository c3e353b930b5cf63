"""The offsets between the clocks of two nodes, from the quickest of several pings over TCP."""

from __future__ import annotations

import queue
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Thread
from typing import ClassVar

from vflops.errors import FolderError
from vflops.launch.clock_server import TIMES, ClockServer, interface_towards
from vflops.launch.factory import launcher_class
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder
from vflops.record.formats.node import Clock
from vflops.record.log.boot import monotonic_clock_id

_PINGS = 50
_AGENT_PINGS = 10
"""Agents send fewer pings, because thousands of them may ask one controller at once."""
_AGENT_LIMIT_S = 2.0


class ClockFile(Document):
    """``clock.json`` of the run: the address of its controller's clock server.

    Only the user who runs the jobs may read it, because of the token.
    """

    schema_name: ClassVar[str] = "vflops.clock"

    host: str
    """The name of the controller's machine."""
    address: str | None = None
    """The address of the interface that the server listens on; None if it is that of ``host``."""
    port: int
    token: str = ""
    """What the server expects first, in hexadecimal digits."""
    clock: str | None = None
    """The id of the host's monotonic clock."""


def offset(
    host: str,
    port: int,
    limit_s: float,
    *,
    token: str,
    pings: int = _PINGS,
    clock: str | None = None,
) -> Clock:
    """Return this machine's clocks minus those of ``host``, or a fault if it does not answer.

    The host reads its clocks at some time during the round trip, so the uncertainty is half of it.
    ``token`` is that of its server, and ``clock`` the id of its monotonic clock.
    """
    best: Clock | None = None
    end_s = time.monotonic() + limit_s
    try:
        with socket.create_connection((host, port), timeout=limit_s) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.sendall(bytes.fromhex(token))
            for ping in range(pings):
                if ping and time.monotonic() > end_s:
                    break  # a busy server: the few answers so far are enough
                reading = _ping(server, clock)
                if best is None or (reading.uncertainty_s or 0.0) < (best.uncertainty_s or 0.0):
                    best = reading
    except (struct.error, ConnectionResetError, BrokenPipeError):
        fault = f"{host}, port {port}, ended the connection without an answer"
        return Clock(offset_s=None, uncertainty_s=None, fault=fault)
    except (OSError, ValueError) as error:
        fault = f"no connection to {host}, port {port}: {error}"
        return Clock(offset_s=None, uncertainty_s=None, fault=fault)
    return best or Clock(offset_s=None, uncertainty_s=None, fault=f"{host} was not asked")


def _ping(server: socket.socket, clock: str | None) -> Clock:
    """Return the offsets of one round trip, which the monotonic clock times."""
    asked_s = time.monotonic()
    server.sendall(b"?")
    server_unix_s, server_s = TIMES.unpack(server.recv(TIMES.size, socket.MSG_WAITALL))
    answered_s, unix_s = time.monotonic(), time.time()
    half_s = (answered_s - asked_s) / 2
    return Clock(
        offset_s=unix_s - half_s - server_unix_s,
        uncertainty_s=half_s,
        monotonic_offset_s=answered_s - half_s - server_s,
        reference_clock=clock,
        reference_zero_s=server_unix_s - server_s,
    )


@contextmanager
def serve_clock(folder: RunFolder, nodes: Sequence[str] = ()) -> Iterator[None]:
    """Serve this machine's time to the run's jobs; a new controller's clock replaces the last.

    ``nodes`` are names or addresses of nodes that may run the jobs, if they are known.
    """
    server = ClockServer(interface_towards(nodes))
    path = folder.path / "clock.json"
    try:
        address = ClockFile(
            host=socket.gethostname(),
            address=server.address,
            port=server.port,
            token=server.token,
            clock=monotonic_clock_id(),
        )
        address.write(path, private=True)
        yield
    finally:
        server.close()
        with suppress(OSError):
            path.unlink(missing_ok=True)  # so that later agents do not wait for an answer


def offset_from_controller(folder: RunFolder) -> tuple[str | None, Clock]:
    """Return the host of the run's reference clock, and this machine's offset from it or a fault.

    Jobs on the controller's machine share its clock.
    """
    if launcher_class(folder.record.settings.launch.on).is_this_machine:
        return socket.gethostname(), _own_clock()
    try:
        address = ClockFile.read(folder.path / "clock.json")
    except FolderError as error:
        fault = f"no controller serves its clock: {error.message}"
        return None, Clock(offset_s=None, uncertainty_s=None, fault=fault)
    return address.host, _offset_within_limit(address)


def _own_clock() -> Clock:
    return Clock(
        offset_s=0.0,
        uncertainty_s=0.0,
        monotonic_offset_s=0.0,
        reference_clock=monotonic_clock_id(),
        reference_zero_s=time.time() - time.monotonic(),
    )


def _offset_within_limit(address: ClockFile) -> Clock:
    """Return the offset, or a fault after the limit: the name lookup has no timeout itself."""
    answer: queue.SimpleQueue[Clock] = queue.SimpleQueue()
    host = address.address or address.host

    def ask() -> None:
        reading = offset(
            host,
            address.port,
            _AGENT_LIMIT_S,
            token=address.token,
            pings=_AGENT_PINGS,
            clock=address.clock,
        )
        answer.put(reading)

    Thread(target=ask, daemon=True).start()
    try:
        return answer.get(timeout=_AGENT_LIMIT_S)
    except queue.Empty:
        fault = f"{host}, port {address.port}, did not answer within {_AGENT_LIMIT_S:g} s"
        return Clock(offset_s=None, uncertainty_s=None, fault=fault)
