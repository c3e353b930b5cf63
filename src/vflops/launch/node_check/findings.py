"""The findings of a preflight: ``preflight.json``, and the files from which they come.

FOLDER/order.json      the task of the nodes; a node without it does not share the folder
FOLDER/found-<k>.json  everything that node k measured

The other files are those of every check: see ``exchange``.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document
from vflops.record.formats.node import Clock

Verdict = Literal["ok", "warn", "fail"]


class Order(Document):
    """``order.json``: the task, the same for all nodes."""

    schema_name: ClassVar[str] = "vflops.preflight-order"

    token: str
    """Identifies this preflight; files of other preflights are ignored."""
    nodes: int
    read_bytes: int
    limit_s: float
    local: bool = False
    """Whether all nodes are the machine that started the preflight."""


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
    on: str
    """The launcher."""
    nodes: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings to fix before a run."""
        return tuple(finding for finding in self.findings if finding.verdict == "fail")
