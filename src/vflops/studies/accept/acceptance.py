"""``acceptance.json``: what was promised, what was measured, and the verdict."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Literal

from vflops.metrics.quality import Better
from vflops.record.files.document import Data, Document
from vflops.studies.accept.reference import Reference

FigureVerdict = Literal["accepted", "rejected", "undecided", "missing"]
Verdict = Literal["accepted", "rejected", "undecided", "incomplete"]
Basis = Literal["runs", "seeds", "nodes"]


class JudgedFigure(Data):
    """One promised figure on one node, with its verdict. Values are in base units."""

    name: str
    place: str | None
    """The node, the part of a node, or None for the whole machine."""
    unit: str
    better: Better
    promised: float
    threshold: float
    """The promised value less the tolerance."""
    confidence: float
    basis: Basis | None
    """What the repeats are: runs, runs with other seeds, or nodes; None without a value."""
    values: tuple[float, ...]
    mean: float | None
    low: float | None
    high: float | None
    """With ``low``, the one-sided confidence bounds of the mean; None with fewer than 2 values.

    ``low`` is at least 0, except for a quality, which has no unit.
    """
    verdict: FigureVerdict
    reason: str | None = None
    """Why it is missing or undecided, or which nodes differ."""
    more: int | None = None
    """How many more repeats would decide; None if decided, or if no number of repeats would."""

    @property
    def title(self) -> str:
        """The name, with the node if there is one."""
        return self.name if self.place is None else f"{self.name} on {self.place}"


class JudgedRun(Data):
    """One run of the test, and what keeps it from being evidence."""

    run: str
    path: str
    created_utc: str
    machine: str
    nodes: tuple[str, ...]
    """The nodes as they are called here: as in ``NODE=RUN``, or as the run names them."""
    hosts: tuple[str, ...]
    """The host names that the run recorded; empty if it records none."""
    manifest_sha256: str | None
    """The hash of ``manifest.json``; None if the run has none."""
    is_valid: bool
    """Whether the run meets every rule of `vflops check`."""
    faults: tuple[str, ...]
    """Rules that the run breaks, and differences from the task of the reference."""


class Acceptance(Document):
    """The outcome of an acceptance test."""

    schema_name: ClassVar[str] = "vflops.acceptance"

    verdict: Verdict
    reference: Reference
    vflops: str
    """The version of vflops that judged."""
    runs: tuple[JudgedRun, ...]
    faults: tuple[str, ...]
    """What is wrong with the test as a whole, for example too few nodes."""
    figures: tuple[JudgedFigure, ...]
    notes: tuple[str, ...]

    def with_verdict(self, *verdicts: FigureVerdict) -> list[JudgedFigure]:
        """Return the figures with one of these verdicts."""
        return [figure for figure in self.figures if figure.verdict in verdicts]

    @property
    def all_faults(self) -> tuple[str, ...]:
        """What keeps the runs from being evidence, with the run."""
        return (*self.faults, *(f"{run.run}: {text}" for run in self.runs for text in run.faults))

    @property
    def lacks_evidence(self) -> bool:
        """Whether a run is not valid, or a figure or a node is missing; repeats do not help."""
        return bool(self.all_faults or self.with_verdict("missing"))

    @property
    def is_decided(self) -> bool:
        """Whether the machine is accepted or rejected, so that the outcome can be signed."""
        return self.verdict in ("accepted", "rejected")

    @property
    def needed_repeats(self) -> int | None:
        """The number of runs on every node that would decide every figure; None if none would."""
        if self.more_repeats is None:
            return None
        totals = [
            self._done(figure) + (figure.more or 0) for figure in self.with_verdict("undecided")
        ]
        return max(totals, default=self.repeats)

    @property
    def repeats(self) -> int:
        """The number of runs on the node with the most of them."""
        return max(self._runs_by_node.values(), default=0)

    @property
    def more_repeats(self) -> int | None:
        """How many more runs on every node would decide every figure; None if no number would."""
        more = [figure.more for figure in self.with_verdict("undecided")]
        known = [number for number in more if number is not None]
        return max(known, default=0) if len(known) == len(more) else None

    @property
    def _runs_by_node(self) -> Counter[str]:
        return Counter(node for run in self.runs for node in run.nodes)

    def lacks_runs(self, figure: JudgedFigure) -> bool:
        """Whether a figure has fewer runs than the reference asks for, so that it is undecided."""
        return self._done(figure) < self.reference.judgement.repeats

    def _done(self, figure: JudgedFigure) -> int:
        """Return the number of runs on the node of a figure, the smallest one for a spread."""
        if figure.basis == "nodes":
            return min(self._runs_by_node.values(), default=0)
        return self._runs_by_node.get(figure.place or "", self.repeats)
