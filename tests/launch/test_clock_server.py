"""The clock server answers those who know its token, and strangers cannot silence it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from vflops.launch import clock_server
from vflops.launch.clock_server import (
    ALL_INTERFACES,
    LOOPBACK,
    TIMES,
    TOKEN_BYTES,
    ClockServer,
    interface_towards,
)
from vflops.launch.node_clock import offset

LIMIT = 8


@pytest.fixture
def server() -> Iterator[ClockServer]:
    server = ClockServer(LOOPBACK, LIMIT)
    yield server
    server.close()


def asked(server: ClockServer, token: str | None = None) -> str | None:
    """Ask for the offset, and return the fault if there is one."""
    return offset(LOOPBACK, server.port, 5, token=server.token if token is None else token).fault


def connected(server: ClockServer) -> socket.socket:
    return socket.create_connection((LOOPBACK, server.port), timeout=5)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_it_listens_only_where_it_is_needed(server: ClockServer) -> None:
    assert server._listening.getsockname()[0] == LOOPBACK
    assert server.address == LOOPBACK


def test_a_client_without_the_token_gets_nothing(server: ClockServer) -> None:
    assert asked(server) is None
    assert "without an answer" in (asked(server, "00" * TOKEN_BYTES) or "")
    assert "without an answer" in (asked(server, server.token[:-2] + "00") or "") or (
        server.token.endswith("00")
    )
    with connected(server) as stranger:
        stranger.sendall(b"?" * TOKEN_BYTES + b"????")
        assert is_closed(stranger)


def test_the_token_may_arrive_in_parts(server: ClockServer) -> None:
    secret = bytes.fromhex(server.token)
    with connected(server) as client:
        client.sendall(secret[:5])
        time.sleep(0.05)
        client.sendall(secret[5:] + b"?")
        unix_s, monotonic_s = TIMES.unpack(client.recv(TIMES.size, socket.MSG_WAITALL))
    assert unix_s == pytest.approx(time.time(), abs=60)
    assert monotonic_s == pytest.approx(time.monotonic(), abs=60)


def test_idle_connections_beyond_the_limit_do_not_silence_it(server: ClockServer) -> None:
    threads = threading.active_count()
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(server)) for _ in range(5 * LIMIT)]
        assert asked(server) is None
        assert len(server._clients) <= LIMIT
        assert threading.active_count() == threads
        assert is_closed(idle[0])  # the oldest one makes room


def test_those_who_know_the_token_are_not_closed_for_strangers(server: ClockServer) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(connected(server))
        client.sendall(bytes.fromhex(server.token) + b"?")
        client.recv(TIMES.size, socket.MSG_WAITALL)
        for _ in range(3 * LIMIT):
            stack.enter_context(connected(server))
        assert asked(server) is None
        client.sendall(b"?")
        assert len(client.recv(TIMES.size, socket.MSG_WAITALL)) == TIMES.size


def test_more_clients_than_connections_wait_for_their_turn(server: ClockServer) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connected(server)) for _ in range(LIMIT)]
        for client in clients:
            client.sendall(bytes.fromhex(server.token) + b"?")
            client.recv(TIMES.size, socket.MSG_WAITALL)
        faults: list[str | None] = []
        waiting = threading.Thread(target=lambda: faults.append(asked(server)))
        waiting.start()
        time.sleep(0.1)
        assert not faults
        clients[0].close()
        waiting.join()
    assert faults == [None]


def test_idle_connections_are_closed(server: ClockServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_server, "IDLE_S", 0.05)
    with connected(server) as idle:
        idle.sendall(bytes.fromhex(server.token))
        assert is_closed(idle)


def test_the_interface_is_that_which_reaches_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = {"n1": "10.0.0.1", "n2": "10.0.0.1", "ib": "10.1.0.1", "me": "127.0.1.1"}
    monkeypatch.setattr(clock_server, "_local_address", routes.get)
    monkeypatch.setattr(socket, "gethostname", lambda: "me")
    assert interface_towards(["n1", "n2"]) == "10.0.0.1"
    assert interface_towards(["n1", "me"]) == "10.0.0.1"  # this machine is one of the nodes
    assert interface_towards(["me"]) == "127.0.1.1"  # all nodes are here
    assert interface_towards(["n1", "ib"]) == ALL_INTERFACES
    assert interface_towards([]) == ALL_INTERFACES  # its name is known only here
    assert interface_towards(["unknown"]) == ALL_INTERFACES
    monkeypatch.setattr(socket, "gethostname", lambda: "n1")
    assert interface_towards([]) == "10.0.0.1"


def test_the_route_to_this_machine_is_the_loopback() -> None:
    assert interface_towards([LOOPBACK]) == LOOPBACK
