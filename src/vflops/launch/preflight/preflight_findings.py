"""The files of a preflight: the messages between the probes and the gatherer, and the findings.

FOLDER/order.json      the task of the probes; a node without it does not share the folder
FOLDER/hello-<k>.json  the answer of node k, in which it describes itself
FOLDER/roll.json       the nodes that answered and take part in the measurements
FOLDER/links-<k>.json  the bandwidth between node k and its neighbours
FOLDER/found-<k>.json  everything that node k measured
FOLDER/preflight.json  the findings
"""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.record.formats.node import Clock

Verdict = Literal["ok", "warn", "fail"]


class Order(Document):
    """``order.json``: the task, the same for all probes."""

    schema_name: ClassVar[str] = "vflops.preflight-order"

    token: str
    """Identifies this preflight; files of other preflights are ignored."""
    nodes: int
    read_bytes: int
    limit_s: float
    local: bool = False
    """Whether all probes run on the machine that started the preflight."""


class Space(Data):
    """Free space in a folder of a node."""

    path: str
    free_bytes: int | None = None
    fault: str | None = None
    """Why the folder is not writable."""


class Gpu(Data):
    """The health of a GPU; values that it does not report are None."""

    name: str
    uncorrected: int | None = None
    """Memory errors since the driver was loaded that ECC could not correct."""
    corrected: int | None = None
    remapping: str | None = None
    """The problem with the remapping of bad memory rows, if any."""
    throttled: tuple[str, ...] = ()
    """Why its clock is throttled."""
    processes: tuple[int, ...] = ()
    """The pids of processes of other users or jobs."""


class Hello(Document):
    """``hello-<k>.json``: a node's description of itself."""

    schema_name: ClassVar[str] = "vflops.preflight-hello"

    token: str
    name: str
    address: str
    clock_address: str | None = None
    """The address of the interface that its clock server listens on; None if it is ``address``."""
    clock_port: int
    clock_token: str = ""
    """What the clock server expects first."""
    store_ports: tuple[int, int]
    """The ports for the pair that starts with this node, and for the group of all nodes."""
    versions: dict[str, str]
    shared: Space
    local: Space | None
    gpus: tuple[Gpu, ...]
    no_gpus: str | None
    """Why there are no GPUs."""


class Roll(Document):
    """``roll.json``: the nodes that take part in joint measurements."""

    schema_name: ClassVar[str] = "vflops.preflight-roll"

    nodes: tuple[int, ...]
    backend: Literal["gloo", "nccl"]


class Link(Data):
    """All-reduce between two neighbours, or all nodes, as one of them measured it."""

    nodes: tuple[int, ...]
    bandwidth: float | None
    """Bus bandwidth in bytes per second: 2(n−1)/n · bytes / time."""
    fault: str | None = None


class Links(Document):
    """``links-<k>.json``: the network as node k measured it."""

    schema_name: ClassVar[str] = "vflops.preflight-links"

    links: tuple[Link, ...]


class NodeResult(Document):
    """``found-<k>.json``: what a node measured together with the others."""

    schema_name: ClassVar[str] = "vflops.preflight-found"

    unseen: tuple[int, ...]
    """The nodes whose files this node does not see in the shared folder."""
    clock: Clock | None
    """The offset from the first node's clock; None on that node."""
    read_bandwidth: float | None
    """The bandwidth of reading from the shared folder, in bytes per second."""
    read_fault: str | None
    links: tuple[Link, ...]
    links_fault: str | None
    """How the process that measured the links failed."""


class Finding(Data):
    """The result of one check."""

    node: str
    """The node, or all nodes of a link."""
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
        """The findings to fix before a run."""
        return tuple(finding for finding in self.findings if finding.verdict == "fail")
