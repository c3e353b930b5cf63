"""``node-<n>.json`` beside the log of an attempt: the node that trains, and its clock."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from vflops.record.files.document import Data, Document
from vflops.record.files.folder_listing import matching_files
from vflops.record.formats.system import Fact


class Clock(Data):
    """A node's clock less that of another machine, by TCP pings."""

    offset_s: float | None
    uncertainty_s: float | None
    """Half of the quickest round trip."""
    fault: str | None = None


class NodeRecord(Document):
    """One node of an attempt: written before its ranks start."""

    schema_name: ClassVar[str] = "vflops.node"

    node: int = Field(ge=0)
    """Which of the attempt's nodes; 0 leads, and its clock is that of the log."""
    nodes: int = Field(ge=1)
    """Of the attempt."""
    host: str
    """The machine's own name: two of a scheduler's nodes can be one machine."""
    name: str
    """What the scheduler calls it."""
    reference: str | None
    """The host whose clock this one is compared with: the controller's. The host itself where all
    jobs are on one machine: the difference is then 0 by definition, not by a measurement."""
    clock: Clock
    facts: tuple[Fact, ...]
    """The machine and its operating system, as in ``system.json``."""

    @property
    def machine(self) -> str:
        """Processor, CPUs and accelerators, in a few words."""
        known = {fact.name: str(fact.value) for fact in self.facts if fact.value is not None}
        accelerators = [
            value
            for name, value in known.items()
            if name.startswith("accelerator ") and name.endswith(" model")
        ]
        counted = [f"{accelerators.count(each)} × {each}" for each in dict.fromkeys(accelerators)]
        cpus = [f"{known['logical cpus']} CPUs"] if "logical cpus" in known else []
        processor = [known["cpu model"]] if "cpu model" in known else []
        return ", ".join((*counted, *cpus, *processor))


def node_file(place: Path, node: int) -> Path:
    """Where a node of the attempt in ``place`` describes itself."""
    return place / f"node-{node}.json"


def node_records(place: Path) -> list[NodeRecord]:
    """The nodes of an attempt that described themselves, in their order."""
    return [NodeRecord.read(path) for path in _numbered(place, "node-*.json")]


def telemetry_file(place: Path, node: int) -> Path:
    """Where a node of the attempt keeps what it samples."""
    return place / (f"telemetry-{node}.jsonl" if node else "telemetry.jsonl")


def node_files(place: Path) -> list[Path]:
    """What the nodes of an attempt left beside its log and the first one's telemetry."""
    return [*_numbered(place, "node-*.json"), *_numbered(place, "telemetry-*.jsonl")]


def _numbered(place: Path, pattern: str) -> list[Path]:
    found = [
        path for path in matching_files(place, pattern) if path.stem.rpartition("-")[2].isdigit()
    ]
    return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))
