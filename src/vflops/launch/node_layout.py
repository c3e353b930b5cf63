"""How equal jobs lie on equal nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vflops.errors import UsageError
from vflops.launch.job_script import Step

MOST_LOSSES = 2
"""Jobs that a node may lose before it gets no other."""


@dataclass(frozen=True)
class Shape:
    """How jobs of ``ranks`` ranks lie on nodes of ``slots`` ranks."""

    ranks: int
    slots: int

    def __post_init__(self) -> None:
        if self.ranks > self.slots and self.ranks % self.slots:
            raise UsageError(
                f"{self.ranks} ranks of a model do not fill nodes of {self.slots} ranks",
                hint=f"take a multiple of {self.slots}, or another launch.ranks_per_node",
            )

    @property
    def nodes(self) -> int:
        """Of one job."""
        return max(self.ranks // self.slots, 1)

    @property
    def ranks_per_node(self) -> int:
        """Of one job."""
        return min(self.ranks, self.slots)

    def steps(self, jobs: Mapping[int, int]) -> list[Step]:
        """The jobs side by side, those that fit on one node together.

        ``jobs``: how often each may be tried. A node that lost a job twice shall get no other, so
        further tries are left to another allocation.
        """
        sharing = max(self.slots // self.ranks, 1)
        nodes, ranks = self.nodes, self.ranks_per_node
        return [
            Step(job, place // sharing * nodes, nodes, ranks, min(tries, MOST_LOSSES))
            for place, (job, tries) in enumerate(jobs.items())
        ]
