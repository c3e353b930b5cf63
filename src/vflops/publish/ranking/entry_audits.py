"""Audits of a submission: who trained parts of it again, and what they found together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from vflops import units
from vflops.publish.ranking.bounded_fields import Day, Name, Number, Rate, Sentence, Steps
from vflops.record.files.document import Data
from vflops.results.evidence.audit_record import AuditVerdict, SegmentVerdict

MAX_PARTS = 50
"""The maximum number of parts of an audit that are shown."""
_NAMED = 3
"""The maximum number of auditors that are named in a list."""
_SMALLEST_SHARE = 0.001

Standing = Literal["counts", "own", "unverified", "not matching"]
"""Whether an audit counts: it is signed by a listed auditor who is not the submitter."""


class AuditedPart(Data):
    """A part of a run that was trained again."""

    name: Name
    reason: Name
    """Why it was chosen."""
    verdict: SegmentVerdict
    samples_per_s_recorded: Rate | None = None
    samples_per_s_here: Rate | None = None


class EntryAudit(Data):
    """An audit of a submission."""

    auditor: Name
    """The auditor's name in the list of auditors, or else what is known of the signature."""
    day: Day
    standing: Standing
    reason: Sentence | None = None
    """Why it does not count; None if it does."""
    verdict: AuditVerdict
    detail: Sentence
    steps: Steps
    """The number of steps that were trained again."""
    steps_total: Steps
    samples_per_s_recorded: Rate | None = None
    """The median speed of the parts in the log of the run."""
    samples_per_s_here: Rate | None = None
    """The median speed that the auditor found."""
    same_stack: bool
    """Whether hardware and software of the auditor were those of the run."""
    parts: Annotated[tuple[AuditedPart, ...], Field(max_length=MAX_PARTS)] = ()
    more_parts: Number = 0
    """The number of parts that are not listed."""

    @property
    def counts(self) -> bool:
        """Whether the audit counts."""
        return self.standing == "counts"

    @property
    def steps_text(self) -> str:
        """The share of the steps that were trained again."""
        return share_text(self.steps, self.steps_total) or "evaluation only"


class JoinedAudits(Data):
    """All audits of a submission, and what those that count have in common."""

    audits: tuple[EntryAudit, ...]
    steps: Steps = 0
    """The number of steps that auditors confirmed bit by bit; those that several trained count
    once."""
    consistent_steps: Steps = 0
    """The same for steps that agree within a tolerance, on another stack."""
    steps_total: Steps = 0

    @property
    def auditors(self) -> tuple[str, ...]:
        """Who confirmed parts of the run."""
        return self._by("confirmed")

    @property
    def _agreeing(self) -> dict[str, int]:
        """What audits that agree say, with the steps that they cover together."""
        steps = {"confirmed": self.steps, "consistent": self.consistent_steps}
        return {verdict: covered for verdict, covered in steps.items() if self._by(verdict)}

    @property
    def text(self) -> str:
        """What the audits that count found, by whom; empty if none counts."""
        texts = []
        for verdict, steps in self._agreeing.items():
            share = share_text(steps, self.steps_total)
            how = "same bits" if verdict == "confirmed" else "consistent within a tolerance"
            texts.append(f"{_names(self._by(verdict))}: {share + ', ' if share else ''}{how}")
        for verdict in ("contradicted", "not conclusive"):
            if names := self._by(verdict):
                texts.append(f"{_names(names)}: {verdict}")
        return "; ".join(texts)

    @property
    def contradictions(self) -> tuple[str, ...]:
        """Why the run does not rank: one sentence for each audit that contradicts it."""
        return tuple(
            f"contradicted by the audit of {audit.auditor} on {audit.day}: {audit.detail}"
            for audit in self.audits
            if audit.counts and audit.verdict == "contradicted"
        )

    def _by(self, verdict: str) -> tuple[str, ...]:
        audits = (audit for audit in self.audits if audit.counts and audit.verdict == verdict)
        return tuple(dict.fromkeys(audit.auditor for audit in audits))


def share_text(steps: int, total: int) -> str:
    """Return the share of ``total`` steps in words; empty if no step was trained."""
    if not steps or not total:
        return ""
    share = min(steps / total, 1.0)
    if share < _SMALLEST_SHARE:
        return f"under {units.percent(_SMALLEST_SHARE)} of the steps"
    return f"{units.percent(share, digits=0 if share >= 0.1 else 1)} of the steps"


def _names(names: tuple[str, ...]) -> str:
    if len(names) > _NAMED:
        return f"{len(names)} auditors"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
