"""The description that a node writes before its ranks start: its hardware and clock offset."""

from __future__ import annotations

import socket
from pathlib import Path

from vflops.launch.factory import launcher_class
from vflops.launch.node_clock import offset_from_controller
from vflops.launch.node_group import NodeGroup
from vflops.launch.site import site_for
from vflops.launch.waiting import node_name
from vflops.machine.system.gather import gather
from vflops.machine.system.installed_files import installed_digest
from vflops.record.folder import RunFolder
from vflops.record.formats.node import ContainerImage, NodeRecord, node_file
from vflops.record.installed_package import installed_package

_LAYERS = ("hardware", "operating system")
"""The layers of ``system.json`` to describe; the others are the same on all nodes."""


def describe_node(folder: RunFolder, attempt: Path, group: NodeGroup) -> None:
    """Write ``node-<n>.json`` to ``attempt``, the folder of an attempt.

    This takes about 0.1 s, as torch is not imported; reading the clock takes at most 2 s.
    """
    reference, clock = offset_from_controller(folder)
    system = gather(folder.path, import_torch=False)
    host = socket.gethostname()
    NodeRecord(
        node=group.node,
        nodes=group.nodes,
        host=host,
        name=node_name(),
        package_sha256=installed_package().sha256,
        reference=reference,
        clock=clock,
        facts=tuple(fact for name in _LAYERS for fact in system.layer(name).facts),
        image=_image(folder),
    ).write(node_file(attempt, group.node))


def _image(folder: RunFolder) -> ContainerImage | None:
    """Return the image that the site runs its jobs in, with a digest of what is in it."""
    settings = folder.record.settings.launch
    if launcher_class(settings.on).is_this_machine:
        return None
    container = site_for(settings, folder.path).container
    if container is None:
        return None
    return ContainerImage(
        image=container.image, runtime=container.runtime, sha256=installed_digest()
    )
