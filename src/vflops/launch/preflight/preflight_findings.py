"""What a preflight leaves: its findings, and the notes that probes and gatherer exchange.

FOLDER/order.json      what the probes shall do; who does not see it has another folder
FOLDER/hello-<k>.json  node k is there, and what it says of itself
FOLDER/roll.json       the nodes that answered: with whom the others measure
FOLDER/links-<k>.json  what node k found of the network to its neighbours
FOLDER/found-<k>.json  all that node k found of the others
FOLDER/preflight.json  the findings
"""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.record.formats.node import Clock

Verdict = Literal["ok", "warn", "fail"]


class Order(Document):
    """``order.json``: the same for all probes."""

    schema_name: ClassVar[str] = "vflops.preflight-order"

    token: str
    """Of this preflight: a file of another one does not count."""
    nodes: int
    read_bytes: int
    limit_s: float


class Space(Data):
    """Room in a folder of a node."""

    path: str
    free_bytes: int | None = None
    fault: str | None = None
    """Why nothing can be written there."""


class Gpu(Data):
    """The health of a GPU; None is what it does not tell."""

    name: str
    uncorrected: int | None = None
    """Memory errors since the driver was loaded that ECC could not mend."""
    corrected: int | None = None
    remapping: str | None = None
    """What is wrong with rows of its memory that are to be replaced."""
    throttled: tuple[str, ...] = ()
    """Why its clock is held back."""
    processes: tuple[int, ...] = ()
    """Of others."""


class Hello(Document):
    """``hello-<k>.json``: what a node says of itself."""

    schema_name: ClassVar[str] = "vflops.preflight-hello"

    token: str
    name: str
    address: str
    clock_port: int
    store_ports: tuple[int, int]
    """Where a pair meets that begins with this node, and where all nodes do."""
    versions: dict[str, str]
    shared: Space
    local: Space | None
    gpus: tuple[Gpu, ...]
    no_gpus: str | None
    """Why there are none."""


class Roll(Document):
    """``roll.json``: who takes part in what needs several nodes."""

    schema_name: ClassVar[str] = "vflops.preflight-roll"

    nodes: tuple[int, ...]
    backend: Literal["gloo", "nccl"]


class Link(Data):
    """All-reduce between two neighbours, or all nodes, as one of them saw it."""

    nodes: tuple[int, ...]
    bandwidth: float | None
    """Bus bandwidth in bytes a second: 2(n−1)/n · bytes / time."""
    fault: str | None = None


class Links(Document):
    """``links-<k>.json``: the network as node k found it."""

    schema_name: ClassVar[str] = "vflops.preflight-links"

    links: tuple[Link, ...]


class Found(Document):
    """``found-<k>.json``: what a node found of the others."""

    schema_name: ClassVar[str] = "vflops.preflight-found"

    unseen: tuple[int, ...]
    """Nodes whose file it does not see in the shared folder."""
    clock: Clock | None
    """Against that of the first node; None there."""
    read_bandwidth: float | None
    """Of the shared folder, in bytes a second."""
    read_fault: str | None
    links: tuple[Link, ...]
    links_fault: str | None
    """What ended the process that measured them."""


class Finding(Data):
    """One thing that was looked at."""

    node: str
    """Of a link all its nodes."""
    what: str
    value: str
    verdict: Verdict
    cure: str | None = None


class Preflight(Document):
    """``preflight.json``: all findings."""

    schema_name: ClassVar[str] = "vflops.preflight"

    utc: str
    on: Literal["local", "slurm"]
    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """What must be mended before a run."""
        return tuple(finding for finding in self.findings if finding.verdict == "fail")
