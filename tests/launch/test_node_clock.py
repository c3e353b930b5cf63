"""The offset of a node's clock from the controller's, and a node's description of itself."""

from __future__ import annotations

import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from tests.support.host_name import needs_host_name
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.launch import node_clock
from vflops.launch.clock_server import TOKEN_BYTES
from vflops.launch.node_description import describe_node
from vflops.launch.node_group import NodeGroup
from vflops.record.folder import RunFolder
from vflops.record.formats.node import node_file, node_files, node_records, telemetry_file
from vflops.record.log.boot import monotonic_clock_id

NO_TOKEN = "00" * TOKEN_BYTES
"""The token of servers that the tests write themselves."""


@pytest.fixture
def scheduled(tmp_path: Path) -> RunFolder:
    """A run whose jobs a scheduler runs."""
    settings = tiny().model_copy(update={"launch": LaunchSettings(on="slurm")})
    return RunFolder.create(tmp_path, "image-classification", settings)


@contextmanager
def behind(by_s: float) -> Iterator[int]:
    """Serve clocks that are behind, the monotonic one by twice as much; yield their port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client:
                assert client.recv(TOKEN_BYTES) == bytes(TOKEN_BYTES)
                while client.recv(1):
                    times_s = time.time() - by_s, time.monotonic() - 2 * by_s
                    client.sendall(struct.pack("!dd", *times_s))

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def clock_file(port: int) -> node_clock.ClockFile:
    return node_clock.ClockFile(host="127.0.0.1", port=port, token=NO_TOKEN)


def test_a_clock_that_is_behind_is_measured() -> None:
    with behind(5) as port:
        clock = node_clock.offset("127.0.0.1", port, 5, token=NO_TOKEN)
    assert clock.offset_s is not None and clock.uncertainty_s is not None
    assert abs(clock.offset_s - 5) <= clock.uncertainty_s + 1e-4
    assert 0 < clock.uncertainty_s < 1
    assert clock.monotonic_offset_s is not None
    assert abs(clock.monotonic_offset_s - 10) <= clock.uncertainty_s + 1e-4
    assert clock.reference_zero_s == pytest.approx(time.time() - time.monotonic() + 5, abs=0.5)


def test_half_of_the_round_trip_is_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked at 100 s, answered at 100.5 s; the server read its clocks in the middle."""

    class Clocks:
        asked = iter((100.0, 100.5))
        monotonic = staticmethod(lambda: next(Clocks.asked))
        time = staticmethod(lambda: 5000.5)

    monkeypatch.setattr(node_clock, "time", Clocks)
    own, server = socket.socketpair()
    with own, server:
        server.sendall(struct.pack("!dd", 4000.25, 70.25))
        clock = node_clock._ping(own, "head")
    assert (clock.offset_s, clock.uncertainty_s) == (1000.0, 0.25)
    assert clock.monotonic_offset_s == 30.0
    assert (clock.reference_clock, clock.reference_zero_s) == ("head", 3930.0)


def test_a_clock_that_cannot_be_reached_is_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    clock = node_clock.offset("127.0.0.1", port, 1, token=NO_TOKEN)
    assert clock.offset_s is None
    assert str(port) in (clock.fault or "")


@needs_host_name
def test_jobs_use_the_clock_of_their_controller(scheduled: RunFolder) -> None:
    with node_clock.serve_clock(scheduled):
        file = scheduled.path / "clock.json"
        address = node_clock.ClockFile.read(file)
        host = address.address or address.host
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert node_clock.offset(host, address.port, 1, token=NO_TOKEN).fault
        reference, clock = node_clock.offset_from_controller(scheduled)
    assert reference == address.host == socket.gethostname()
    assert clock.offset_s is not None and clock.uncertainty_s is not None
    assert clock.monotonic_offset_s is not None
    assert abs(clock.monotonic_offset_s) <= clock.uncertainty_s  # it is the same clock
    assert clock.offset_s == pytest.approx(0, abs=0.5)
    assert clock.reference_clock == monotonic_clock_id()
    assert node_clock.offset(host, address.port, 1, token=address.token).fault  # it is closed


def test_without_a_controller_there_is_a_fault(scheduled: RunFolder) -> None:
    reference, clock = node_clock.offset_from_controller(scheduled)
    assert reference is None
    assert "clock.json does not exist" in (clock.fault or "")


def test_a_controller_that_hangs_delays_nobody(scheduled: RunFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connected by the kernel, no answer
        port = silent.getsockname()[1]
        clock_file(port).write(scheduled.path / "clock.json")
        start_s = time.monotonic()
        _, clock = node_clock.offset_from_controller(scheduled)
    assert 1.5 < time.monotonic() - start_s < 30
    assert clock.offset_s is None
    assert str(port) in (clock.fault or "")


def test_a_node_describes_itself(scheduled: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    attempt = scheduled.attempt_folder(1, scheduled.claim_attempt(1))
    with behind(5) as port:
        clock_file(port).write(scheduled.path / "clock.json")
        describe_node(scheduled, attempt, NodeGroup(node=1, nodes=2))
    assert node_file(attempt, 1).name == "node-1.json"
    (record,) = node_records(attempt)
    assert (record.node, record.nodes, record.name) == (1, 2, "n7")
    assert (record.host, record.reference) == (socket.gethostname(), "127.0.0.1")
    assert record.clock.offset_s == pytest.approx(5, abs=0.5)
    assert {"usable cpus", "kernel"} <= {fact.name for fact in record.facts}
    assert " CPUs, " in record.machine
    package = scheduled.record.package
    assert package and record.package_sha256 == package.sha256 is not None


def test_jobs_on_one_machine_share_its_clock(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "image-classification", tiny())
    attempt = folder.attempt_folder(1, folder.claim_attempt(1))
    describe_node(folder, attempt, NodeGroup())
    (record,) = node_records(attempt)
    assert record.reference == record.host
    assert (record.clock.offset_s, record.clock.uncertainty_s) == (0.0, 0.0)
    assert (record.clock.monotonic_offset_s, record.clock.reference_clock) == (
        0.0,
        monotonic_clock_id(),
    )


def test_files_of_nodes_are_listed_in_order(tmp_path: Path) -> None:
    names = ["node-0.json", "node-2.json", "node-10.json", "telemetry-2.jsonl"]
    for name in (*reversed(names), "telemetry.jsonl", "events.jsonl", "node-x.json"):
        (tmp_path / name).touch()
    assert [path.name for path in node_files(tmp_path)] == names
    assert telemetry_file(tmp_path, 0).name == "telemetry.jsonl"
    assert telemetry_file(tmp_path, 2).name == "telemetry-2.jsonl"
