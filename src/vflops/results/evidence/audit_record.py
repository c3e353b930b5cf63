"""``audit.json``: which parts of a run somebody trained again, and what they found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from vflops.record.files.document import Data, Document
from vflops.record.formats.bounded_numbers import NonNegative

SegmentVerdict = Literal["same bits", "within tolerance", "differs", "not audited"]
AuditVerdict = Literal["confirmed", "consistent", "contradicted", "not conclusive"]
"""``consistent`` if all parts agree on another stack, within a tolerance."""
Reason = Literal["first", "resumed", "target", "last", "last evaluation", "best candidate", "drawn"]
AUDIT_FILE = "audit.json"
_MAX_SUMS = 10**10
"""Steps times parts up to which the steps of forged parts are computed, in a second."""


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
    steps: NonNegative = 0
    """Number of steps that were computed again."""
    differences: tuple[Difference, ...] = ()
    samples_per_s_recorded: float | None = None
    """From the commitment at its start to the one at its end; data and training count."""
    samples_per_s_here: float | None = None
    """The fastest of all repetitions here."""
    seconds_here: float | None = None
    """The time that its steps take at this speed."""

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


class Odds(Data):
    """How likely the audit includes a part of a forgery, wherever it is."""

    forged_share: float = Field(gt=0, le=1)
    """The share of all steps that are forged."""
    probability: float = Field(ge=0, le=1)
    """The least probability over all places of such a forgery."""


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
    """Steps that were computed again in parts that could be compared."""
    odds: tuple[Odds, ...] = ()
    """Empty in records of older versions."""
    same_stack: bool
    """Whether hardware and software are those of the run, so that bits must be equal."""
    stack_differences: tuple[str, ...] = ()
    trusted_run: str | None = None
    """The run from which the tolerance was measured; None if it was measured by repetitions."""
    segments: tuple[AuditedSegment, ...]
    ensembles: tuple[AuditedEnsemble, ...] = ()
    speed_ratio: float | None = None
    """The largest ratio of recorded to found speed: of all drawn parts together, and of each part
    that is long enough; None if the machines are not of one kind, or if nothing was timed."""
    speed_spread: float | None = None
    """The slowest over the fastest repetition of a part that seemed too fast; None without any."""
    verdict: AuditVerdict
    detail: str


def caught_probability(lengths: Sequence[int], drawn: int, forged: int) -> float:
    """Return the probability that ``drawn`` parts include a forged one, in the worst case.

    ``lengths`` are the steps of the parts that only a draw audits, one after the other, each with a
    probability proportional to its steps. At least ``forged`` steps are forged, in the parts in
    which that is found least often: those with the fewest steps, F, that are enough. Each draw
    finds them with the probability F / (W − D), where W are all steps and D those drawn before. The
    bound assumes that the shortest parts were drawn before; it is exact for parts of equal length.
    """
    ascending = sorted(lengths)
    total = sum(ascending)
    if forged > total:
        return 1.0  # some of it is in the parts that are always audited
    if forged <= 0:
        return 0.0
    steps = forged
    if total * len(lengths) <= _MAX_SUMS:
        sums = 1  # bit n is set if some parts have n steps together
        for length in lengths:
            sums |= sums << length
        enough = sums >> forged
        steps += (enough & -enough).bit_length() - 1
    missed, before = 1.0, 0
    for length in ascending[:drawn]:
        missed *= max(1.0 - steps / (total - before), 0.0)
        before += length
    return 1.0 - missed
