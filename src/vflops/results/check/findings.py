"""``findings.json``: the verdict of each rule."""

from __future__ import annotations

from typing import ClassVar, Literal

from vflops.record.files.document import Data, Document

Verdict = Literal["pass", "fail", "not applicable", "cannot tell"]


class Finding(Data):
    """One rule's verdict on one run."""

    rule: str
    title: str
    section: str = ""
    """The section of the paper; empty for rules that are not from a paper."""
    verdict: Verdict
    evidence: str
    """What the verdict is based on."""
    where: str | None = None
    """File and line of the evidence in the run folder: ``jobs/1/0/events.jsonl:7``."""
    reads: tuple[str, ...] = ()
    """The files that the rule reads."""

    @property
    def text(self) -> str:
        """The file and line, if known, followed by the evidence."""
        return f"{self.where}: {self.evidence}" if self.where else self.evidence

    @property
    def failed(self) -> bool:
        """Whether the rule is not met; "cannot tell" counts as not met."""
        return self.verdict in ("fail", "cannot tell")


class LayerFinding(Data):
    """One layer of the system: its differences from the reference, and the level they allow."""

    layer: str
    level: Literal["hardware", "system", "free"] | None
    """None if the problem differs, so that the run has no level."""
    differences: tuple[str, ...]


class Findings(Document):
    """All verdicts of a rule set."""

    schema_name: ClassVar[str] = "vflops.findings"

    run: str
    rule_set: str
    rule_set_version: int
    findings: tuple[Finding, ...]
    layers: tuple[LayerFinding, ...] = ()
    """The layers that decide the level of the run; empty if nothing was trained."""

    @property
    def passed(self) -> bool:
        """Whether every rule that applies is met."""
        return not self.failures

    @property
    def failures(self) -> list[Finding]:
        """The rules that are not met."""
        return [finding for finding in self.findings if finding.failed]

    @property
    def applying(self) -> int:
        """The number of rules that apply to the run."""
        return sum(finding.verdict != "not applicable" for finding in self.findings)

    @property
    def tally(self) -> str:
        """A summary: ``26 pass, 1 fails, 2 cannot tell, 5 do not apply``; zeros are left out."""
        words: dict[Verdict, tuple[str, str]] = {
            "pass": ("passes", "pass"),
            "fail": ("fails", "fail"),
            "cannot tell": ("cannot tell", "cannot tell"),
            "not applicable": ("does not apply", "do not apply"),
        }
        verdicts = [finding.verdict for finding in self.findings]
        counted = ((verdicts.count(verdict), forms) for verdict, forms in words.items())
        return ", ".join(f"{n} {one if n == 1 else many}" for n, (one, many) in counted if n)
