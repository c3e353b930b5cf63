"""``audit.json``: which parts of a run somebody trained again, and what they found."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field

from vflops.record.files.document import Data, Document
from vflops.record.formats.bounded_numbers import NonNegative

SegmentVerdict = Literal["same bits", "within tolerance", "differs", "cannot tell"]
AuditVerdict = Literal["confirmed", "contradicted", "not conclusive"]
Reason = Literal["first", "resumed", "target", "last", "last evaluation", "best candidate", "drawn"]
AUDIT_FILE = "audit.json"


class Difference(Data):
    """How far a figure is from the recorded one, and how far that may be."""

    figure: str
    difference: float
    tolerance: float = Field(ge=0)
    """The largest difference that honest repetitions gave, times a margin; 0 for equal bits."""

    @property
    def is_within(self) -> bool:
        """Whether the difference is within its tolerance."""
        return self.difference <= self.tolerance


class AuditedSegment(Data):
    """A part of a training that was trained again."""

    job: NonNegative
    candidate: str | None = None
    """The candidate of a search; None for a model."""
    first: NonNegative
    """It starts after this step …"""
    last: NonNegative
    """… and ends after this one; if both are equal, the model was only evaluated."""
    reason: Reason
    """Why it was chosen."""
    verdict: SegmentVerdict
    detail: str
    commitments: NonNegative = 0
    """Number of hashes in the log that were compared."""
    differences: tuple[Difference, ...] = ()
    samples_per_s_recorded: float | None = None
    samples_per_s_here: float | None = None

    @property
    def name(self) -> str:
        """The part of the run in words."""
        if self.candidate is not None:
            return f"candidate {self.candidate}"
        if self.first == self.last:
            return f"job {self.job}, evaluation after step {self.last:,}"
        return f"job {self.job}, steps {self.first:,} to {self.last:,}"


class AuditedEnsemble(Data):
    """An ensemble whose quality was computed again from the stored predictions of its models."""

    workload: str
    repeat: NonNegative
    quality_recorded: float
    quality_here: float | None
    """None if the predictions are missing or were changed."""
    detail: str

    @property
    def agrees(self) -> bool | None:
        """Whether both qualities are equal; None if that is not known."""
        if self.quality_here is None:
            return None
        return math.isclose(self.quality_here, self.quality_recorded, abs_tol=1e-9)


class AuditRecord(Document):
    """``audit.json``: the result of an audit, which its auditor may sign."""

    schema_name: ClassVar[str] = "vflops.audit"

    run: str
    """The id of the audited run."""
    run_sha256: str
    """Hash of its ``run.json``."""
    manifest_sha256: str | None
    """Hash of its ``manifest.json``; None if it has none."""
    created_utc: str
    versions: dict[str, str | None]
    nonce: str
    """The auditor's random number, from which the parts were drawn."""
    segments_total: NonNegative
    """Number of parts that could be drawn."""
    segments_drawn: NonNegative
    """Number of parts that were drawn at random and could be compared, besides those that are
    always audited."""
    steps_total: NonNegative
    steps_audited: NonNegative
    """Steps of the parts that could be compared."""
    same_stack: bool
    """Whether hardware and software are those of the run, so that bits must be equal."""
    stack_differences: tuple[str, ...] = ()
    trusted_run: str | None = None
    """The run from which the tolerance was measured; None if it was measured by repetitions."""
    segments: tuple[AuditedSegment, ...]
    ensembles: tuple[AuditedEnsemble, ...] = ()
    speed_ratio: float | None = None
    """The median of recorded over repeated speed; None if the machines are not of one kind."""
    verdict: AuditVerdict
    detail: str


def caught_probability(total: int, drawn: int, forged_share: float) -> float:
    """Return the probability that a random draw includes at least one forged segment.

    ``total`` segments of equal length, of which ``forged_share`` are forged and ``drawn`` are
    drawn without replacement: 1 − C(total − forged, drawn) / C(total, drawn).
    """
    forged = min(math.ceil(total * forged_share), total)
    if forged <= 0 or drawn <= 0:
        return 0.0
    drawn = min(drawn, total)
    return 1.0 - math.comb(total - forged, drawn) / math.comb(total, drawn)
