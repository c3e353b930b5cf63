"""What an ensemble says of its nodes, as ``score.json`` holds it."""

from __future__ import annotations

from typing import Literal

from vflops.record.files.document import Data


class NodeNamed(Data):
    """A place that stands out: a node, the nodes of a job, or a part of the only machine."""

    nodes: tuple[str, ...]
    jobs: tuple[int, ...]
    trait: Literal["slow", "noisy"]
    excess: float
    """Slow: its typical time over that of all, less 1. Noisy: its spread, less that of all."""


class NodesNamed(Data):
    """Which nodes are slow or noisy beyond chance."""

    places: int
    """That were compared."""
    pieces: int
    """Of equal work whose times each job gave, at least."""
    named: tuple[NodeNamed, ...] = ()
    reason: str | None = None
    """Why it cannot be told; None: it can."""


class TwinPair(Data):
    """Two models that should be one."""

    models: tuple[int, int]
    """From 0."""
    nodes: tuple[tuple[str, ...], tuple[str, ...]]
    """Where each was trained; empty where that is not known."""
    one_node: bool
    """Whether they were on the same: what that computes wrong each time, both have."""
    verdict: Literal["agree", "differ", "cannot tell"]
    reason: str | None = None
    """Why it cannot be told."""
    epoch: float | None = None
    """Of the first evaluation that differs; None where only the trained weights do."""
    difference: float | None = None
    """In the quality of that evaluation, second less first."""


class TwinsScore(Data):
    """Whether nodes compute the same."""

    pairs: tuple[TwinPair, ...]
    suspects: tuple[str, ...]
    """Nodes of a pair that differs which are in no pair that agrees, other nodes' with theirs."""
