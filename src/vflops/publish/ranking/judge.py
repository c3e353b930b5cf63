"""Whether a run is whole and valid, as ``vflops verify`` and ``vflops check`` say it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings

NO_LEVEL = "none"
"""Of a run whose problem is another than the reference's, so that no level can be claimed."""
_MOST_REASONS = 6


@dataclass(frozen=True)
class Judgement:
    """The verdicts on a run."""

    findings: Findings
    level: str
    digest: str
    """Of what was recorded, as its manifest pins it; empty unless all is as it was pinned."""
    signer: str | None
    reasons: tuple[str, ...]
    """Why it does not rank."""


def judge(contents: Contents, signers: Path | None) -> Judgement:
    """Verify the folder, check it by its own rule set, and say what level it may claim."""
    from vflops.publish.evidence.verify import verify_contents
    from vflops.results.check.checking import check
    from vflops.results.check.level import levels

    verified = verify_contents(contents, signers)
    findings = check(contents)
    state = contents.state
    reasons = [] if state.complete else [f"it did not come to its end: {state.reason}"]
    reasons += [f"not verified: {each}" for each in verified.alterations]
    if verified.intact and not verified.accepted:
        reasons.append(f"not verified: {verified.signature}")
    said = set() if state.complete else {"complete"}
    failed = [each for each in findings.failures if each.rule not in said]
    reasons += [f"rule {each.rule}: {each.told}" for each in failed]
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
    """The same for copies of a run, whatever was derived in one of them since."""
    from vflops.results.evidence.integrity import FolderIntegrity

    manifest = contents.once(FolderIntegrity.of).manifest
    pins = sorted(f"{pin.sha256} {pin.path}" for pin in manifest.files) if manifest else []
    return hashlib.sha256("\n".join(pins).encode(errors="replace")).hexdigest()


def judged_by(signers: Path | None) -> str:
    """What verdicts rest on besides the run: a hash that changes with rules and signers."""
    import vflops
    from vflops.results.check.rule_sets import RULE_SETS

    rules = sorted(f"{each.name}/{each.version}" for each in RULE_SETS.values())
    keys = signers.read_bytes() if signers else b""
    words = " ".join([vflops.__version__, *rules])
    return hashlib.sha256(words.encode() + b"\n" + keys).hexdigest()
