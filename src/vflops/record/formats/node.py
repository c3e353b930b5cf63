"""``node-<n>.json`` in the folder of an attempt: one of its nodes, and the node's clock."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from vflops.record.files.document import Data, Document, read_json
from vflops.record.files.folder_listing import matching_files
from vflops.record.files.read_once import is_file
from vflops.record.formats.bounded_numbers import MAX_PROCESSES, Processes
from vflops.record.formats.system import Fact, SharedFact


class Clock(Data):
    """The offset of a node's clocks from those of the reference host, measured by TCP messages."""

    offset_s: float | None
    uncertainty_s: float | None
    """Half of the shortest round-trip time."""
    fault: str | None = None
    """Why the offset is not known."""
    monotonic_offset_s: float | None = None
    """The same for the monotonic clocks, which nobody can set; None in earlier versions."""
    reference_clock: str | None = None
    """The id of the reference host's monotonic clock; another one after it was restarted."""
    reference_zero_s: float | None = None
    """Unix time at the zero of that monotonic clock, by the reference host's wall clock then."""


class ContainerImage(Data):
    """The image of the container that a node's processes run in."""

    image: str
    """Its name or path, as in ``site.toml`` or ``--container``."""
    runtime: str
    sha256: str | None
    """SHA-256 of the lists of installed files in the image, which the node computed inside of it;
    None if the image has no such lists."""


class NodeRecord(Document):
    """One node of an attempt; written before the ranks start."""

    schema_name: ClassVar[str] = "vflops.node"

    node: int = Field(ge=0, lt=MAX_PROCESSES)
    """Index of the node in the attempt; the log has the clock of node 0."""
    nodes: Processes
    """Number of nodes of the attempt."""
    host: str
    """Host name of the machine; two nodes of a scheduler can be on one machine."""
    name: str
    """The name of the node in the scheduler."""
    package_sha256: str | None = None
    """The hash of the package vflops on this node, as in ``run.json``; None in runs of 0.2."""
    reference: str | None
    """The reference host, whose clock the offset is relative to: the host of the controller. If all
    jobs run on one machine, it is that machine, and the offset is 0 by definition."""
    clock: Clock
    facts: tuple[SharedFact, ...]
    """Facts about the machine and its operating system, as in ``system.json``."""
    image: ContainerImage | None = None
    """None if the site has no container."""

    @property
    def machine(self) -> str:
        """A short description of accelerators, CPUs and processor."""
        values = {fact.name: str(fact.value) for fact in self.facts if fact.value is not None}
        accelerators = [
            value
            for name, value in values.items()
            if name.startswith("accelerator ") and name.endswith(" model")
        ]
        accelerator_counts = [
            f"{accelerators.count(model)} × {model}" for model in dict.fromkeys(accelerators)
        ]
        cpus = [f"{values['logical cpus']} CPUs"] if "logical cpus" in values else []
        processor = [values["cpu model"]] if "cpu model" in values else []
        return ", ".join((*accelerator_counts, *cpus, *processor))


def node_file(attempt: Path, node: int) -> Path:
    """Return the path of a node's record in the folder of an attempt."""
    return attempt / f"node-{node}.json"


def node_records(attempt: Path) -> tuple[NodeRecord, ...]:
    """Read the records of an attempt's nodes, in the order of their indices."""
    return tuple(NodeRecord.read(path) for path in _record_files(attempt))


class NodeReader:
    """Reads the records of many attempts, each once; equal facts about a machine are shared."""

    def __init__(self) -> None:
        self._attempts: dict[Path, tuple[NodeRecord, ...]] = {}
        self._records: dict[Path, NodeRecord] = {}
        self._facts: dict[str, tuple[Fact, ...]] = {}

    def __call__(self, attempt: Path) -> tuple[NodeRecord, ...]:
        """Return the records of an attempt's nodes, in the order of their indices."""
        if attempt not in self._attempts:
            self._attempts[attempt] = tuple(map(self.read, _record_files(attempt)))
        return self._attempts[attempt]

    def read(self, path: Path) -> NodeRecord:
        """Return one record."""
        if path not in self._records:
            self._records[path] = self._parse(path)
        return self._records[path]

    def _parse(self, path: Path) -> NodeRecord:
        """Read a record; facts that were validated before are not validated again."""
        data = read_json(path)
        written = repr(data.get("facts"))
        if written in self._facts:
            data["facts"] = self._facts[written]
        record = NodeRecord.parse(data, path)
        self._facts.setdefault(written, record.facts)
        return record


def telemetry_file(attempt: Path, node: int) -> Path:
    """Return the path of a node's telemetry in the folder of an attempt."""
    return attempt / (f"telemetry-{node}.jsonl" if node else "telemetry.jsonl")


def telemetry_files(attempt: Path) -> list[Path]:
    """Return the telemetry files of an attempt, in the order of its nodes."""
    first = telemetry_file(attempt, 0)
    others = _numbered_files(attempt, "telemetry-*.jsonl")
    return [*([first] if is_file(first) else []), *others]


def node_files(attempt: Path) -> list[Path]:
    """Return the node records of an attempt, and the telemetry files of all nodes but the first."""
    return [
        *_record_files(attempt),
        *_numbered_files(attempt, "telemetry-*.jsonl"),
    ]


def _record_files(attempt: Path) -> list[Path]:
    return _numbered_files(attempt, "node-*.json")


def _numbered_files(attempt: Path, pattern: str) -> list[Path]:
    paths = [
        path for path in matching_files(attempt, pattern) if path.stem.rpartition("-")[2].isdigit()
    ]
    return sorted(paths, key=lambda path: int(path.stem.rpartition("-")[2]))
