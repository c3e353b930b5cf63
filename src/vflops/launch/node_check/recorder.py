"""Records what the nodes measured in the run's log, while the controller waits for the jobs."""

from __future__ import annotations

import socket
from collections.abc import Callable

from vflops.launch.node_check.exchange import measuring, remove_temporary_files
from vflops.record.folder import RunFolder
from vflops.record.formats.measured_node import (
    LinksMeasured,
    MeasuredLinks,
    MeasuredNode,
    NodeMeasured,
    links_files,
    measured_node_files,
)
from vflops.record.formats.measurement import Measurement
from vflops.record.formats.system import LAYERS, SystemRecord
from vflops.record.log.events import EventWriter
from vflops.units import quantity

_OF_THE_WORKLOAD = LAYERS[6:]


class NodeRecorder:
    """Writes an event for each node as soon as its file exists, and the ceilings of each kind."""

    def __init__(
        self, folder: RunFolder, events: EventWriter, say: Callable[[str], None] = lambda text: None
    ) -> None:
        """``say`` is called with what was measured."""
        self._folder, self._events, self._say = folder, events, say
        history = folder.history(0)
        self._nodes = {e.payload(NodeMeasured).node for e in history.events("node-measured")}
        self._links = {e.payload(LinksMeasured).file for e in history.events("links-measured")}

    @property
    def measuring(self) -> bool:
        """Whether nodes are measuring at the moment."""
        return measuring(self._folder.path)

    def poll(self) -> None:
        """Record the nodes and links that have been measured since the last call."""
        for path in measured_node_files(self._folder.path):
            if path.stem not in self._nodes:
                self._record_node(MeasuredNode.read(path))
        for path in links_files(self._folder.path):
            if path.name not in self._links:
                self._record_links(path.name, MeasuredLinks.read(path))

    def finish(self) -> None:
        """Remove temporary files of the nodes, which have all ended."""
        self.poll()
        remove_temporary_files(self._folder.path)

    def _record_node(self, node: MeasuredNode) -> None:
        if not self._nodes:
            self._describe(node)
        if node.planned:
            self._events.write("plan", measurements=node.planned)
            for item in node.full:
                self._events.write("measurement", **item.model_dump(mode="json"))
            for load in node.loads:
                self._events.write("load", **load.model_dump(mode="json"))
        # Last: a controller that takes over records again what has no such event.
        measured = NodeMeasured(node=node.node, sha256=node.digest())
        self._events.write("node-measured", **measured.model_dump(mode="json"))
        self._nodes.add(node.node)
        for fault in node.faults:
            self._say(f"{node.node}: its ceilings were not measured: {fault}")
        if node.full:
            self._say(f"ceilings of {node.node} ({node.kind}): {_peaks(node)}")

    def _record_links(self, name: str, links: MeasuredLinks) -> None:
        for item in links.measurements:
            self._events.write("measurement", **item.model_dump(mode="json"))
            if item.value is not None:
                where = f"{'between' if ',' in (item.node or '') else 'within'} {item.node}"
                self._say(f"{item.benchmark} {where}: {quantity(item.value, 'B/s')}")
        for fault in links.faults:
            self._say(f"link not measured: {fault}")
        measured = LinksMeasured(file=name, sha256=links.digest())
        self._events.write("links-measured", **measured.model_dump(mode="json"))
        self._links.add(name)

    def _describe(self, node: MeasuredNode) -> None:
        """Let system.json describe the node instead of the machine that submitted the run."""
        submitting = SystemRecord.read(self._folder.system_file)
        if submitting.node is not None:  # an earlier controller died before it wrote the event
            self._events.write("described", sha256=submitting.digest())
            return
        layers = tuple(
            submitting.layer(layer.name) if layer.name in _OF_THE_WORKLOAD else layer
            for layer in node.system.layers
        )
        described = node.system.model_copy(
            update={
                "layers": layers,
                "node": node.node,
                "submitted_from": _submitting_machine(submitting, node),
            }
        )
        described.write(self._folder.system_file)
        self._events.write("described", sha256=described.digest())


def _submitting_machine(submitting: SystemRecord, node: MeasuredNode) -> str:
    here = socket.gethostname() == node.host
    return submitting.kind + (f" (the host of {node.node})" if here else "")


def _peaks(node: MeasuredNode) -> str:
    """Return the highest value of each benchmark in words."""
    peaks: dict[str, Measurement] = {}
    for item in sorted(node.full, key=lambda item: item.value or 0.0):
        if item.value is not None:
            peaks[" ".join(filter(None, (item.precision, item.benchmark)))] = item
    values = [
        f"{name} {quantity(item.value, item.unit)}" + (" (in doubt)" if item.caveat else "")
        for name, item in sorted(peaks.items())
    ]
    return ", ".join(values) or "none could be measured"
