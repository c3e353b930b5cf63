"""The steps of an allocation: jobs of equal size on nodes of equal size, as planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vflops.errors import UsageError
from vflops.launch.job_history import MAX_LOSSES
from vflops.launch.job_script import Step
from vflops.launch.launcher import Launcher
from vflops.launch.placement import Node, plan


@dataclass(frozen=True)
class NodeLayout:
    """The layout of jobs with ``ranks`` ranks each on nodes with ``slots`` slots each."""

    ranks: int
    slots: int

    def __post_init__(self) -> None:
        if self.ranks > self.slots and self.ranks % self.slots:
            raise UsageError(
                f"{self.ranks} ranks of a model do not fill nodes of {self.slots} ranks",
                hint=f"use a multiple of {self.slots}, or another launch.ranks_per_node",
            )

    @property
    def nodes(self) -> int:
        """The number of nodes of one job."""
        return max(self.ranks // self.slots, 1)

    @property
    def ranks_per_node(self) -> int:
        """The number of ranks of one job on each of its nodes."""
        return min(self.ranks, self.slots)

    def steps(self, jobs: Mapping[int, int]) -> list[Step]:
        """Return the steps of an allocation; jobs that fit on one node share it.

        ``jobs`` maps each job to the attempts that it has left. In one allocation a job is tried at
        most ``MAX_LOSSES`` times, because its node is then excluded from the next allocation.
        """
        nodes = [Node(str(number), self.slots) for number in range(len(jobs) * self.nodes)]
        placements = plan(nodes, len(jobs), self.ranks).placements
        return [
            Step(
                job,
                int(placement.places[0][0]),
                len(placement.places),
                len(placement.places[0][1]),
                min(tries, MAX_LOSSES),
            )
            for (job, tries), placement in zip(jobs.items(), placements, strict=True)
        ]


def check_layout(place: type[Launcher], nodes: Sequence[Node], ranks: int) -> None:
    """Raise UsageError if a model would have different numbers of ranks on its nodes."""
    if not place.is_this_machine:
        NodeLayout(ranks, min(node.slots for node in nodes))
