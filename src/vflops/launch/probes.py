"""The interface to preflight probes, one per node, which every back end implements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vflops.launch.scheduler import JobStatus
from vflops.python_start import module_options

LOG = "preflight.log"
"""The file in the preflight's folder with the output of all probes."""
PROBE = module_options("vflops.launch.preflight.node_probe")
"""What Python runs on a node, with the preflight's folder and the number of the node."""


class Probes(Protocol):
    """Probes that were started, one per node."""

    def look(self) -> JobStatus:
        """Return whether the probes are queued, running or ended, and on which nodes."""
        ...

    def stop(self) -> None:
        """End the probes that still run."""
        ...


@dataclass(frozen=True)
class UnusableNode:
    """A node that the scheduler would not give to a job."""

    name: str
    reason: str


@dataclass(frozen=True)
class ProbePlan:
    """How many nodes to probe, and the unusable ones if fewer than requested can be probed."""

    nodes: int
    missing: tuple[UnusableNode, ...] = ()
