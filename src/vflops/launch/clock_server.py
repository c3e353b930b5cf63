"""A server of this machine's clocks for the nodes of a run.

It answers only those who know its token, listens only where they reach it, and has a bounded number
of connections in one thread, so that strangers can neither read the clocks nor silence it.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import selectors
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread

LOOPBACK = "127.0.0.1"
ALL_INTERFACES = ""
TIMES = struct.Struct("!dd")
"""Unix time and the time of the monotonic clock."""
TOKEN_BYTES = 16
MAX_CONNECTIONS = 256
"""Well below the usual limit of 1024 open files; more clients wait in the queue of the kernel."""
IDLE_S = 10.0
"""A connection without a question for so long is closed."""
_BACKLOG = 4096
_MAX_PINGS = 64
"""The largest number of questions that are answered at a time."""
_DISCARD_PORT = 9


@dataclass(eq=False)
class _Client:
    """A connection, in the order of ``active_s`` among all of them."""

    connection: socket.socket
    active_s: float
    received: bytes = b""
    """The part of the token that has arrived."""
    known: bool = False
    """Whether it has sent the token."""


class ClockServer:
    """Serves the times of this machine until it is closed or the process ends.

    A client sends the token, then one byte for each reading of the clocks.
    """

    def __init__(self, address: str = LOOPBACK, max_connections: int = MAX_CONNECTIONS) -> None:
        """``address`` is that of the interface to listen on, or ``ALL_INTERFACES``."""
        self.token = os.urandom(TOKEN_BYTES).hex()
        self._secret = bytes.fromhex(self.token)
        self._listening = socket.create_server(
            (address, 0), family=_family(address), backlog=_BACKLOG
        )
        self._listening.setblocking(False)
        self.address = address or None
        """The address of its interface; None for all of them."""
        self.port: int = self._listening.getsockname()[1]
        self._max_connections = max_connections
        self._clients: dict[_Client, None] = {}  # the longest inactive one comes first
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._accepting = True
        Thread(target=self._serve, name="vflops-clock", daemon=True).start()

    def close(self) -> None:
        """End all connections, and accept no further ones."""
        with suppress(OSError):
            self._wake.close()  # ends the thread, which closes the rest
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # refuses connections from now on

    def _serve(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select(timeout=1.0):
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._listening:
                        self._accept()
                    elif key.data in self._clients:  # else it was closed for a newer one
                        self._answer(key.data)
                self._close_idle()
                self._accept_if_possible()
        finally:
            for client in list(self._clients):
                self._end(client)
            self._selector.close()
            self._listening.close()
            self._woken.close()

    def _accept(self) -> None:
        if len(self._clients) >= self._max_connections and not self._make_room():
            self._selector.unregister(self._listening)  # the kernel keeps the others waiting
            self._accepting = False
            return
        try:
            connection, _ = self._listening.accept()
        except OSError:  # the client has gone, or this process has too many open files
            if not self._make_room():
                time.sleep(0.01)
            return
        connection.setblocking(False)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = _Client(connection, time.monotonic())
        self._clients[client] = None
        self._selector.register(connection, selectors.EVENT_READ, client)
        self._answer(client)  # its token usually arrives with it

    def _make_room(self) -> bool:
        """Close the oldest connection that has not sent the token; return whether there was one."""
        stranger = next((client for client in self._clients if not client.known), None)
        if stranger is not None:
            self._end(stranger)
        return stranger is not None

    def _accept_if_possible(self) -> None:
        if not self._accepting and len(self._clients) < self._max_connections:
            self._selector.register(self._listening, selectors.EVENT_READ)
            self._accepting = True

    def _close_idle(self) -> None:
        limit_s = time.monotonic() - IDLE_S
        for client in list(self._clients):
            if client.active_s > limit_s:
                break
            self._end(client)

    def _answer(self, client: _Client) -> None:
        try:
            data = client.connection.recv(_MAX_PINGS)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not client.known:
            client.received += data
            token, pings = client.received[:TOKEN_BYTES], client.received[TOKEN_BYTES:]
            if data and len(token) < TOKEN_BYTES:
                return  # and its time does not start again
            client.known = hmac.compare_digest(token, self._secret)
            if data and client.known and not pings:
                self._renew(client)
                return
            data = pings if client.known else b""
        if not data:
            self._end(client)
            return
        self._renew(client)
        try:
            for _ in data:
                client.connection.send(TIMES.pack(time.time(), time.monotonic()))
        except OSError:  # it does not read the answers, or has gone
            self._end(client)

    def _renew(self, client: _Client) -> None:
        client.active_s = time.monotonic()
        del self._clients[client]
        self._clients[client] = None

    def _end(self, client: _Client) -> None:
        del self._clients[client]
        with suppress(KeyError, ValueError):
            self._selector.unregister(client.connection)
        client.connection.close()


def interface_towards(nodes: Iterable[str]) -> str:
    """Return the address of this machine's interface from which all ``nodes`` are reached.

    Without nodes, it is the interface that has this machine's host name. ``ALL_INTERFACES`` if
    there are several, or none is known.
    """
    found = {address for node in nodes if (address := _local_address(node)) is not None}
    if not found:
        found = {address for address in [_local_address(socket.gethostname())] if address}
        if all(map(_is_loopback, found)):  # the name has another address on other machines
            return ALL_INTERFACES
    elsewhere = {address for address in found if not _is_loopback(address)}
    chosen = elsewhere or found
    return chosen.pop() if len(chosen) == 1 else ALL_INTERFACES


def _local_address(node: str) -> str | None:
    """Return the address from which this machine would reach ``node``; nothing is sent."""
    try:
        family, kind, _, _, target = socket.getaddrinfo(
            node, _DISCARD_PORT, type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET
