"""How the nodes that joined a run are divided among ranks, by the rules of ``sizing``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vflops.config.launch import LaunchSettings
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.join.join_files import NodeFile
from vflops.launch.node_layout import NodeLayout
from vflops.launch.placement import Node, NodeResources
from vflops.launch.sizing import RankShare, rank_share, sized
from vflops.units import count as number_of


@dataclass(frozen=True)
class NodeSizes:
    """The slots of nodes for jobs of ``ranks`` ranks that train on ``device``."""

    launch: LaunchSettings
    device: str
    ranks: int

    @property
    def layout(self) -> NodeLayout:
        """The division of a node, the same as in an allocation of SLURM."""
        return NodeLayout(self.ranks, self.launch.ranks_per_node or self.ranks)

    def takes(self, file: NodeFile) -> bool:
        """Whether a node has room for the slots of the layout."""
        return bool(self._fitting([file]))

    def share(self, files: Sequence[NodeFile]) -> RankShare:
        """Return what each rank gets, the same on all of these nodes that take ranks."""
        share = rank_share(self._fitting(files), self.layout.slots, self.launch, whole=True)
        # A device that the user chose is not renumbered.
        return replace(share, gpus=0) if ":" in self.device else share

    def idle_accelerators(self, file: NodeFile) -> int:
        """Return how many accelerators of a node no rank would use."""
        (node,) = self._fitting([file])
        used = self.layout.slots * node.gpus_per_slot
        return file.accelerators - used if used else 0

    def refusal(self, file: NodeFile, others: Sequence[NodeFile]) -> tuple[str, str] | None:
        """Return why a node cannot take ranks beside the others, and what to do; None if it can."""
        if others and self._accelerated(file) != self._accelerated(others[0]):
            return (
                f"{file.name} has {number_of(file.accelerators, 'accelerator')}, but"
                f" {others[0].name} has {others[0].accelerators}",
                "let nodes of one kind join, or train on their CPUs: --set train.device=cpu",
            )
        slots = self.layout.slots
        takes = max((node.slots for node in self._slots_of(file)), default=0)
        if takes < slots:
            has = number_of(file.cores, "core")
            if file.accelerators:
                has += f" and {number_of(file.accelerators, 'accelerator')}"
            return (
                f"{file.name} has {has}, room for {number_of(takes, 'rank')}, but {slots} run on"
                " each node",
                "start the run with fewer --models or --ranks, or more --nodes",
            )
        try:
            self.share([file])
        except UsageError as error:
            return error.message, error.hint or "join with all cores of the node"
        return None

    def _accelerated(self, file: NodeFile) -> bool:
        return any(node.gpus_per_slot for node in self._slots_of(file))

    def _fitting(self, files: Sequence[NodeFile]) -> list[Node]:
        found = (node for file in files for node in self._slots_of(file))
        return [node for node in found if node.slots >= self.layout.slots]

    def _slots_of(self, file: NodeFile) -> list[Node]:
        """Return the node with all of its slots; nothing if it has none."""
        gpus = min(file.accelerators, 1) if ":" in self.device else file.accelerators
        launch = self.launch.model_copy(update={"ranks_per_node": None})
        return sized([NodeResources(file.name, file.cores, gpus=gpus)], launch, self.device)


def sizes_of_run(settings: Settings) -> list[NodeSizes]:
    """Return what all workloads of a run need, so that no node joins that is too small for one."""
    trains = [section["train"] for section in settings.workloads.values()]
    return [NodeSizes(settings.launch, train["device"], train["ranks"]) for train in trains]
