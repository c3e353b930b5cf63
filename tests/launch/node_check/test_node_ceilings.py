"""A node measures itself once; the next allocation does not measure it again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.support.sample_parts import write_system
from vflops.config.profiles import tiny
from vflops.config.settings import MicroSettings
from vflops.launch.node_check import node_ceilings
from vflops.launch.node_check.exchange import CLAIM, measuring, remove_temporary_files
from vflops.launch.node_check.node_ceilings import NodeCeilings
from vflops.launch.node_check.recorder import NodeRecorder
from vflops.launch.node_group import NodeGroup
from vflops.launch.node_layout import NodeLayout
from vflops.machine.devices import Device
from vflops.record.folder import RunFolder
from vflops.record.formats.measured_node import FOLDER, MeasuredNode, measured_node_file
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import SystemRecord
from vflops.record.log.events import EventWriter
from vflops.record.readout.contents import Contents
from vflops.results.evidence.logged_hashes import hash_mismatches

ONLY_MEMORY = MicroSettings(budget_s=0.2, benchmarks=("memory",), device="cpu")


@pytest.fixture(autouse=True)
def _small_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "cache_bytes", lambda _: 1 << 18)  # filling larger ones takes long


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run whose nodes shall measure their memory."""
    settings = tiny().model_copy(update={"micro": ONLY_MEMORY})
    folder = RunFolder.create(tmp_path / "runs", "suite", settings)
    write_system(folder)
    with folder.start_attempt(job=0) as events:
        events.write("described", sha256=SystemRecord.read(folder.system_file).digest())
    return folder


def measure(folder: RunFolder, node: str, token: str) -> MeasuredNode:
    NodeCeilings(folder, NodeGroup(token=token), node, NodeLayout(1, 1)).run()
    return MeasuredNode.read(measured_node_file(folder.path, node))


def test_the_first_node_of_a_kind_measures_the_full_set(folder: RunFolder) -> None:
    first, second = measure(folder, "n1", "7.0.0"), measure(folder, "n2", "7.0.0")
    assert {item.case for item in first.full} == {"copy", "triad"}
    assert {key[0] for key in first.planned} == {"memory"}
    assert not second.full and not second.planned
    assert first.kind == second.kind
    for node in (first, second):
        assert {item.case for item in node.quick} == {"copy", "triad"}
        assert {item.node for item in (*node.quick, *node.full)} == {node.node}


def test_a_later_allocation_measures_only_new_nodes(folder: RunFolder) -> None:
    before = measure(folder, "n1", "7.0.0")
    remove_temporary_files(folder.path)
    assert measure(folder, "n1", "8.0.0") == before
    assert measure(folder, "n2", "8.0.0").full == ()  # one of its kind is known


def test_two_jobs_on_one_node_measure_it_once(folder: RunFolder) -> None:
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(measure, folder, "n1", token) for token in ("7.0.0", "8.0.0")]
        first, second = (job.result() for job in jobs)
    assert first == second and first.full


def test_nodes_that_are_all_known_wait_for_nobody(folder: RunFolder) -> None:
    """The first node leaves at once; the others must not look for what it removed."""
    for node in ("n1", "n2"):
        measure(folder, node, "7.0.0")
    groups = [NodeGroup(node=number, nodes=2, token="8.0.0") for number in range(2)]
    start_s = time.monotonic()
    with ThreadPoolExecutor() as pool:
        started = [
            pool.submit(NodeCeilings(folder, group, f"n{group.node + 1}", NodeLayout(1, 1)).run)
            for group in groups
        ]
        for one in started:
            one.result()
    assert time.monotonic() - start_s < 30  # instead of a minute
    assert not measuring(folder.path)


def test_every_accelerator_is_measured_in_its_share_of_the_time(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    def noted(micro: MicroSettings, **rest: object) -> list[Measurement]:
        asked.append((micro.device, micro.budget_s))
        return []

    gpu = SimpleNamespace(accelerators=3, name="cuda:0", torch_device=torch.device("cuda:0"))
    monkeypatch.setattr(node_ceilings, "pick", lambda name: gpu)
    monkeypatch.setattr(node_ceilings, "measure", noted)
    node = NodeCeilings(folder, NodeGroup(token="7.0.0"), "n1", NodeLayout(1, 1))
    node._micro = ONLY_MEMORY.model_copy(update={"device": "cuda", "budget_s": 30.0})
    assert list(node._quick()) == []
    assert [device for device, _ in asked] == ["cuda:0", "cuda:1", "cuda:2"]
    assert [budget_s for _, budget_s in asked] == pytest.approx([2.0, 2.0, 2.0])


def test_the_claim_of_a_node_that_died_is_taken_over(folder: RunFolder) -> None:
    nodes = folder.path / FOLDER
    nodes.mkdir()
    kind = measure(folder, "n0", "7.0.0").kind
    measured_node_file(folder.path, "n0").unlink()
    (claim,) = nodes.glob(f"{CLAIM}*")
    assert claim.read_text() == "7.0.0"
    later = measure(folder, "n1", "8.0.0")
    assert later.kind == kind and later.full


def test_a_device_that_the_node_lacks_is_a_fault(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_ceilings, "available", lambda: ["cpu"])
    node = NodeCeilings(folder, NodeGroup(token="7.0.0"), "n1", NodeLayout(1, 1))
    node._micro = ONLY_MEMORY.model_copy(update={"device": "xpu"})
    node.run()
    measured = MeasuredNode.read(measured_node_file(folder.path, "n1"))
    assert "device 'xpu' is not available" in measured.faults[0]
    assert measured.full == ()


def test_the_recorder_writes_each_node_once(folder: RunFolder) -> None:
    said: list[str] = []
    submitting = SystemRecord.read(folder.system_file)
    measure(folder, "n1", "7.0.0")
    with folder.start_attempt(job=0) as events:
        recorder = NodeRecorder(folder, events, said.append)
        recorder.poll()
        recorder.poll()
        measure(folder, "n2", "7.0.0")
        NodeRecorder(folder, events).poll()  # another controller takes over
    contents = Contents(folder)
    assert [node.node for node in contents.measured_nodes] == ["n1", "n2"]
    assert [item.case for item in contents.measurements] == ["copy", "triad"]
    assert {item.kind for item in contents.measurements} == {contents.measured_nodes[0].kind}
    assert hash_mismatches(contents) == {}
    system = SystemRecord.read(folder.system_file)
    assert (system.node, system.submitted_from) == ("n1", f"{submitting.kind} (the host of n1)")
    assert system.layer("problem domain") == submitting.layer("problem domain")
    assert len(contents.history.events("described")) == 2
    assert len(contents.history.events("node-measured")) == 2


def test_a_controller_that_died_while_it_recorded_a_node_loses_no_ceiling(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure(folder, "n1", "7.0.0")
    write = EventWriter.write

    def dies(self: EventWriter, kind: str, /, **data: object) -> None:
        if kind == "load":
            raise KeyboardInterrupt
        write(self, kind, **data)  # type: ignore[arg-type]  # as given

    with folder.start_attempt(job=0) as events:
        monkeypatch.setattr(EventWriter, "write", dies)
        with pytest.raises(KeyboardInterrupt):
            NodeRecorder(folder, events).poll()
        monkeypatch.setattr(EventWriter, "write", write)
    with folder.start_attempt(job=0) as events:
        NodeRecorder(folder, events).poll()
    history = folder.history(0)
    assert len(history.events("node-measured")) == 1
    assert len(history.events("load")) == 2  # one for each ceiling
    assert {item.case for item in Contents(folder).measurements} == {"copy", "triad"}


def test_a_controller_that_died_between_file_and_event_is_made_up_for(folder: RunFolder) -> None:
    measure(folder, "n1", "7.0.0")
    with folder.start_attempt(job=0) as events:
        recorder = NodeRecorder(folder, events)
        recorder._describe(MeasuredNode.read(measured_node_file(folder.path, "n1")))
    with folder.start_attempt(job=0) as events:
        NodeRecorder(folder, events).poll()
    assert hash_mismatches(Contents(folder)) == {}
