"""What compute nodes measured before training: ``nodes/<name>.json``, ``links/<nodes>.json``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, field_validator

from vflops.record.files.document import Data, Document
from vflops.record.files.folder_listing import matching_files
from vflops.record.formats.measurement import Loaded, Measurement
from vflops.record.formats.recorded_names import RecordedName
from vflops.record.formats.system import SystemRecord

FOLDER = "nodes"
"""The folder in the run folder with a file for each compute node."""
LINKS = "links"
"""The folder in the run folder with the links between nodes."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,90}")


class NodeMeasured(Data):
    """Event ``node-measured``: a compute node was measured."""

    node: str
    """The name of the node in the scheduler."""
    sha256: str
    """Hash of the node's file."""

    @field_validator("node")
    @classmethod
    def _is_file_name(cls, node: str) -> str:
        if not _NAME.fullmatch(node):
            raise ValueError("a node's name has only letters, digits, '.', '_' and '-'")
        return node


class LinksMeasured(Data):
    """Event ``links-measured``: the links between nodes were measured."""

    file: Annotated[RecordedName, Field(pattern=r"^[0-9a-f]{12}\.json$")]
    """Name of the file with the links."""
    sha256: str
    """Hash of the file."""


class MeasuredNode(Document):
    """A compute node: its description, and its ceilings."""

    schema_name: ClassVar[str] = "vflops.measured-node"

    node: str
    """The name of the node in the scheduler."""
    host: str
    """Host name of the machine; two nodes of a scheduler can be on one machine."""
    allocation: str
    """The scheduler's id of the allocation, or of the job, in which the node was measured."""
    kind: str
    """Accelerators, CPUs, memory and processor in words; equal nodes are of one kind."""
    system: SystemRecord
    """The nine layers as this node sees them; the last three, of the workload, are absent."""
    quick: tuple[Measurement, ...] = ()
    """A short measurement of every accelerator, or of the CPU, and of its memory, made on all nodes
    at the same time; their spread shows slow nodes."""
    planned: tuple[tuple[str, str, str | None], ...] = ()
    """The keys of the full set of ceilings; empty on all nodes of a kind but one."""
    full: tuple[Measurement, ...] = ()
    """The full set of ceilings."""
    loads: tuple[Loaded, ...] = ()
    """The CPU load by other processes after each measurement of the full set."""
    faults: tuple[str, ...] = Field(default=())
    """What could not be measured, and why."""


def measured_node_file(run: Path, node: str) -> Path:
    """Return the path of a node's file in the run folder."""
    return run / FOLDER / f"{node}.json"


def measured_node_files(run: Path) -> list[Path]:
    """Return the files of all nodes, in the order of their names."""
    return sorted(matching_files(run / FOLDER, "*.json"))


class MeasuredLinks(Document):
    """``links/<nodes>.json``: the ceilings of communication between nodes."""

    schema_name: ClassVar[str] = "vflops.measured-links"

    nodes: tuple[str, ...]
    measurements: tuple[Measurement, ...] = ()
    """All-reduce between the ranks of one job and across all nodes, and point to point."""
    faults: tuple[str, ...] = ()
    """What could not be measured, and why."""


def links_file(run: Path, nodes: Sequence[str], ranks: int, slots: int) -> Path:
    """Return the path of the links between nodes of ``slots`` ranks, for jobs of ``ranks``."""
    text = f"{ranks} {slots} {' '.join(sorted(nodes))}"
    return run / LINKS / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def links_files(run: Path) -> list[Path]:
    """Return the files of all measured links."""
    return sorted(matching_files(run / LINKS, "*.json"))
