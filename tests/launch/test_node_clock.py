"""Clocks of nodes against the controller's, and what a node says of itself."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.launch import node_clock
from vflops.launch.node_description import describe_node
from vflops.launch.node_group import NodeGroup
from vflops.record.folder import RunFolder
from vflops.record.formats.node import node_file, node_files, node_records, telemetry_file


@pytest.fixture
def scheduled(tmp_path: Path) -> RunFolder:
    """A run whose jobs go to a scheduler."""
    settings = tiny().model_copy(update={"launch": LaunchSettings(on="slurm")})
    return RunFolder.create(tmp_path, "image-classification", settings)


@contextmanager
def behind(by_s: float) -> Iterator[int]:
    """The port of a clock that is behind."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def tell() -> None:
            asking, _ = server.accept()
            with asking:
                while asking.recv(1):
                    asking.sendall(struct.pack("!d", time.time() - by_s))

        Thread(target=tell, daemon=True).start()
        yield server.getsockname()[1]


def test_a_clock_that_is_behind_is_measured() -> None:
    with behind(5) as port:
        found = node_clock.offset("127.0.0.1", port, 5)
    assert found.offset_s is not None and found.uncertainty_s is not None
    assert abs(found.offset_s - 5) <= found.uncertainty_s + 1e-4
    assert 0 < found.uncertainty_s < 1


def test_a_clock_that_cannot_be_reached_is_a_fault() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    found = node_clock.offset("127.0.0.1", port, 1)
    assert found.offset_s is None
    assert str(port) in (found.fault or "")


def test_jobs_ask_the_controller_that_serves_the_run(scheduled: RunFolder) -> None:
    with node_clock.served(scheduled):
        told = node_clock.ClockFile.read(scheduled.path / "clock.json")
        reference, found = node_clock.against_controller(scheduled)
    assert reference == told.host == socket.gethostname()
    assert found.offset_s is not None and found.uncertainty_s is not None
    assert abs(found.offset_s) <= found.uncertainty_s  # it is the same clock
    assert node_clock.offset(told.host, told.port, 1).fault  # no controller, no clock


def test_without_a_controller_the_fault_is_kept(scheduled: RunFolder) -> None:
    reference, found = node_clock.against_controller(scheduled)
    assert reference is None
    assert "clock.json does not exist" in (found.fault or "")


def test_a_controller_that_hangs_holds_nobody_up(scheduled: RunFolder) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connected by the kernel, no answer
        port = silent.getsockname()[1]
        node_clock.ClockFile(host="127.0.0.1", port=port).write(scheduled.path / "clock.json")
        began_s = time.monotonic()
        _, found = node_clock.against_controller(scheduled)
    assert 1.5 < time.monotonic() - began_s < 3
    assert found.offset_s is None
    assert str(port) in (found.fault or "")


def test_a_node_describes_itself(scheduled: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    place = scheduled.attempt_folder(1, scheduled.claim_attempt(1))
    with behind(5) as port:
        node_clock.ClockFile(host="127.0.0.1", port=port).write(scheduled.path / "clock.json")
        describe_node(scheduled, place, NodeGroup(node=1, nodes=2))
    assert node_file(place, 1).name == "node-1.json"
    (found,) = node_records(place)
    assert (found.node, found.nodes, found.name) == (1, 2, "n7")
    assert (found.host, found.reference) == (socket.gethostname(), "127.0.0.1")
    assert found.clock.offset_s == pytest.approx(5, abs=0.5)
    assert {"usable cpus", "kernel"} <= {fact.name for fact in found.facts}
    assert " CPUs, " in found.machine


def test_jobs_of_one_machine_have_one_clock(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "image-classification", tiny())
    place = folder.attempt_folder(1, folder.claim_attempt(1))
    describe_node(folder, place, NodeGroup())
    (found,) = node_records(place)
    assert found.reference == found.host
    assert (found.clock.offset_s, found.clock.uncertainty_s) == (0.0, 0.0)


def test_files_of_nodes_are_found_in_their_order(tmp_path: Path) -> None:
    names = ["node-0.json", "node-2.json", "node-10.json", "telemetry-2.jsonl"]
    for name in (*reversed(names), "telemetry.jsonl", "events.jsonl", "node-x.json"):
        (tmp_path / name).touch()
    assert [path.name for path in node_files(tmp_path)] == names
    assert telemetry_file(tmp_path, 0).name == "telemetry.jsonl"
    assert telemetry_file(tmp_path, 2).name == "telemetry-2.jsonl"
