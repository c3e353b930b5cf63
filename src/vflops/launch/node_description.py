"""A node describes itself before its ranks start: what it is, and how far off its clock is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from vflops.launch.node_clock import against_controller
from vflops.launch.node_group import Team
from vflops.machine.system.gather import gather
from vflops.record.folder import RunFolder
from vflops.record.formats.node import NodeRecord, node_file

_LAYERS = ("hardware", "operating system")
"""The rest of ``system.json`` is what all nodes have alike."""


def describe_node(folder: RunFolder, place: Path, team: Team) -> None:
    """Leave ``node-<n>.json`` in ``place``, the folder of an attempt.

    It takes about 0.1 s: torch is not asked, and neither is a clock for more than 2 s.
    """
    reference, clock = against_controller(folder)
    system = gather(folder.path, torch_too=False)
    host = socket.gethostname()
    NodeRecord(
        node=team.node,
        nodes=team.nodes,
        host=host,
        name=os.environ.get("SLURMD_NODENAME", host),
        reference=reference,
        clock=clock,
        facts=tuple(fact for name in _LAYERS for fact in system.layer(name).facts),
    ).write(node_file(place, team.node))
