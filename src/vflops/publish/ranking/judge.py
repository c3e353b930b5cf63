"""The verdict on a run by ``vflops verify`` and ``vflops check``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings

NO_LEVEL = "none"
"""The level of a run that solves another problem than the reference."""
_MOST_REASONS = 6


@dataclass(frozen=True)
class Judgement:
    """The verdict on a run."""

    findings: Findings
    level: str
    digest: str
    """A hash of the files in its manifest; empty unless the run is intact."""
    signer: str | None
    reasons: tuple[str, ...]
    """Why the run does not rank."""


def judge(contents: Contents, signers: Path | None) -> Judgement:
    """Verify the folder, check it by its own rule set, and find the level that it may claim."""
    from vflops.publish.evidence.verify import verify_contents
    from vflops.results.check.checking import check
    from vflops.results.check.level import levels

    verified = verify_contents(contents, signers)
    findings = check(contents)
    state = contents.state
    reasons = [] if state.complete else [f"it did not finish: {state.reason}"]
    reasons += [f"not verified: {alteration}" for alteration in verified.alterations]
    if verified.intact and not verified.accepted:
        reasons.append(f"not verified: {verified.signature}")
    failures = findings.failures
    if not state.complete:  # said already
        failures = [finding for finding in failures if finding.rule != "complete"]
    reasons += [f"rule {finding.rule}: {finding.text}" for finding in failures]
    if len(reasons) > _MOST_REASONS:
        more = len(reasons) - _MOST_REASONS
        reasons = [*reasons[:_MOST_REASONS], f"and {more} more"]
    return Judgement(
        findings=findings,
        level=contents.once(levels).claim or NO_LEVEL,
        digest=_recorded(contents) if verified.intact else "",
        signer=verified.signer if verified.accepted else None,
        reasons=tuple(reasons),
    )


def _recorded(contents: Contents) -> str:
    """Return a hash of the recorded files, which is the same for all copies of a run."""
    from vflops.results.evidence.integrity import FolderIntegrity

    manifest = contents.once(FolderIntegrity.of).manifest
    pins = sorted(f"{pin.sha256} {pin.path}" for pin in manifest.files) if manifest else []
    return hashlib.sha256("\n".join(pins).encode(errors="replace")).hexdigest()


def verdict_context(signers: Path | None) -> str:
    """Return a hash of what verdicts depend on besides the run: version, rules and signers."""
    import vflops
    from vflops.results.check.rule_sets import RULE_SETS

    rules = sorted(f"{rule_set.name}/{rule_set.version}" for rule_set in RULE_SETS.values())
    keys = signers.read_bytes() if signers else b""
    words = " ".join([vflops.__version__, *rules])
    return hashlib.sha256(words.encode() + b"\n" + keys).hexdigest()
