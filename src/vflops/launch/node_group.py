"""The nodes that run one attempt at a job together, with one agent each; the first one leads."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from vflops.errors import RunFailed
from vflops.launch.waiting import reserved_port
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder

CORES = "VFLOPS_CORES"
"""The variable with the cores of an agent; a scheduler's steps do not have it."""
GROUP = "VFLOPS_GROUP"
"""The variable with this node's number in the group, the number of nodes and the group's token."""
ADDRESS = "VFLOPS_ADDRESS"
"""The variable with the address at which other nodes reach this one; by default its host name."""
_MEET_S = 120.0
"""How long an agent waits for the leader's claim, which a shared file system may show late."""


class Claim(Document):
    """``claim.json`` of an attempt on several nodes: who may join, and where the ranks meet."""

    schema_name: ClassVar[str] = "vflops.claim"

    token: str
    store: str


@dataclass(frozen=True)
class NodeGroup:
    """This node's part in an attempt."""

    node: int = 0
    nodes: int = 1
    token: str = ""
    """The same on all nodes of one start of a job, and different for every start."""
    port: socket.socket | None = None
    """Where the ranks of several nodes meet: the port is reserved while this socket is open."""
    address: str = ""
    """Where the other nodes reach this one."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> NodeGroup:
        """Return the group that the variables of this process describe, or a single node's.

        A node that joined a run gives them to its agents, and SLURM to the tasks of a step.
        """
        if GROUP in environment:
            number, count, token = environment[GROUP].split(maxsplit=2)
            node, nodes = int(number), int(count)
        elif CORES in environment or "SLURM_STEP_ID" not in environment:
            return cls()
        else:
            start = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
            node = int(environment.get("SLURM_NODEID", "0"))
            nodes = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
            token = ".".join(environment.get(name, "0") for name in start)
        port = reserved_port() if node == 0 and nodes > 1 else None
        return cls(node, nodes, token, port, environment.get(ADDRESS) or socket.gethostname())

    @property
    def leads(self) -> bool:
        """Whether this node claims the attempt."""
        return self.node == 0

    def share(self, ranks: int) -> range:
        """Return the ranks of this node."""
        if ranks % self.nodes:
            raise RunFailed(
                f"{ranks} ranks cannot be distributed evenly over {self.nodes} nodes",
                hint=f"use a multiple of {self.nodes}",
            )
        count = ranks // self.nodes
        return range(self.node * count, (self.node + 1) * count)

    def lead(self, folder: RunFolder, job: int) -> tuple[int, str | None]:
        """Claim a new attempt; return its number, and the address where its ranks meet.

        The address is None on a single node, where the ranks meet in a file.
        """
        attempt = folder.claim_attempt(job)
        if self.port is None:
            return attempt, None
        store = f"tcp://{self.address}:{self.port.getsockname()[1]}"
        claim = Claim(token=self.token, store=store)
        claim.write(folder.attempt_folder(job, attempt) / "claim.json")
        return attempt, claim.store

    def join(self, folder: RunFolder, job: int) -> tuple[int, str]:
        """Return the attempt that the leading node claimed, and where its ranks meet."""
        end_s = time.monotonic() + _MEET_S
        while time.monotonic() < end_s:
            for path in sorted((folder.path / "jobs" / str(job)).glob("*/claim.json")):
                claim = Claim.read(path)
                if claim.token == self.token:
                    return int(path.parent.name), claim.store
            time.sleep(0.1)
        raise RunFailed(
            f"node {self.node} waited {_MEET_S:g} s for the first node's claim in {folder.path}",
            hint="check that the run folder is on a file system that all nodes share",
        )


SINGLE_NODE = NodeGroup()
"""The group of a single node."""
