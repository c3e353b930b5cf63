"""``node-<n>.json`` beside the log of an attempt: the node that trains, and its clock."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field

from vflops.record.files.document import Data, Document
from vflops.record.files.folder_listing import matching_files
from vflops.record.formats.system import Fact


class Clock(Data):
    """The offset of a node's clock from that of another machine, by TCP pings."""

    offset_s: float | None
    uncertainty_s: float | None
    """Half of the fastest round trip."""
    fault: str | None = None


class NodeRecord(Document):
    """One node of an attempt; written before its ranks start."""

    schema_name: ClassVar[str] = "vflops.node"

    node: int = Field(ge=0)
    """The node's number in the attempt; node 0 leads, and its clock is that of the log."""
    nodes: int = Field(ge=1)
    """The number of nodes of the attempt."""
    host: str
    """The machine's host name: two of a scheduler's nodes can be one machine."""
    name: str
    """What the scheduler calls it."""
    reference: str | None
    """The host whose clock this one is compared with: that of the controller. The host itself if
    all jobs run on one machine; the offset is then 0 by definition, not by measurement."""
    clock: Clock
    facts: tuple[Fact, ...]
    """The machine and its operating system, as in ``system.json``."""

    @property
    def machine(self) -> str:
        """A short description of accelerators, CPUs and processor."""
        known = {fact.name: str(fact.value) for fact in self.facts if fact.value is not None}
        accelerators = [
            value
            for name, value in known.items()
            if name.startswith("accelerator ") and name.endswith(" model")
        ]
        counted = [
            f"{accelerators.count(model)} × {model}" for model in dict.fromkeys(accelerators)
        ]
        cpus = [f"{known['logical cpus']} CPUs"] if "logical cpus" in known else []
        processor = [known["cpu model"]] if "cpu model" in known else []
        return ", ".join((*counted, *cpus, *processor))


def node_file(attempt: Path, node: int) -> Path:
    """Return the path of a node's description in the folder of an attempt."""
    return attempt / f"node-{node}.json"


def node_records(attempt: Path) -> list[NodeRecord]:
    """Read the descriptions of an attempt's nodes, in their order."""
    return [NodeRecord.read(path) for path in _numbered(attempt, "node-*.json")]


def telemetry_file(attempt: Path, node: int) -> Path:
    """Return the path of a node's telemetry."""
    return attempt / (f"telemetry-{node}.jsonl" if node else "telemetry.jsonl")


def node_files(attempt: Path) -> list[Path]:
    """Return the files of an attempt's nodes besides the log and the first node's telemetry."""
    return [*_numbered(attempt, "node-*.json"), *_numbered(attempt, "telemetry-*.jsonl")]


def _numbered(attempt: Path, pattern: str) -> list[Path]:
    paths = [
        path for path in matching_files(attempt, pattern) if path.stem.rpartition("-")[2].isdigit()
    ]
    return sorted(paths, key=lambda path: int(path.stem.rpartition("-")[2]))
