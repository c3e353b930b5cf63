"""What the ranks of a rehearsal need: they share accelerators or cores, as one job on one machine.

The agent of a job passes on how many ranks a node of the real layout has; each rank then chooses
its accelerator.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

from vflops.config.launch import LaunchSettings
from vflops.machine.system.cpu_share import cpu_threads

NODE_RANKS = "VFLOPS_REHEARSED_NODE"
"""The variable with the number of ranks of the job on each node of the real layout."""
AT_ONCE = "VFLOPS_REHEARSED_AT_ONCE"
"""The variable with the number of ranks of all jobs that share this machine."""
_HERE = "VFLOPS_REHEARSED_HERE"
"""The variable with the number of ranks of the job on this machine, which may stand for several
nodes."""
THREADS = "OMP_NUM_THREADS"


def rehearsal_variables(
    launch: LaunchSettings, ranks: int, *, alone: bool, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables of ``ranks`` ranks on this machine.

    Their threads are their share of the cores, at least one. ``alone`` says that no other job uses
    these cores; otherwise all ranks of a node do.
    """
    node_ranks = launch.ranks_per_node or ranks
    of_node = max(node_ranks, ranks)
    sharing = ranks if alone else of_node
    return {
        NODE_RANKS: str(min(node_ranks, ranks)),
        AT_ONCE: environment.get(AT_ONCE, str(of_node)),
        _HERE: str(ranks),
        THREADS: str(cpu_threads(sharing).count),
    }


@dataclass(frozen=True)
class SharedMachine:
    """The ranks of a rehearsed job on this machine."""

    ranks: int
    """How many there are."""
    at_once: int
    """The number of ranks of all jobs that share it."""

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> SharedMachine | None:
        """Return the machine that the ranks of a rehearsal share; None in any other run."""
        here = environment.get(_HERE)
        return None if here is None else cls(int(here), int(environment[AT_ONCE]))

    def prepare_nccl(
        self, accelerators: int, environment: MutableMapping[str, str] = os.environ
    ) -> None:
        """Let NCCL accept several ranks on one accelerator; call it before NCCL starts.

        NCCL refuses two ranks of a host on one device, so each rank gets a host of its own. Their
        messages then take the network, which is this machine's own unless the user chose another.
        """
        if self.ranks <= accelerators:
            return
        environment["NCCL_HOSTID"] = f"{socket.gethostname()}-{environment['RANK']}"
        if int(environment["WORLD_SIZE"]) == self.ranks:
            environment.setdefault("NCCL_SOCKET_IFNAME", "lo")
            environment.setdefault("NCCL_IB_DISABLE", "1")
