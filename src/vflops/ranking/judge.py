"""Whether a run is whole and valid, as ``vflops verify`` and ``vflops check`` say it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from vflops.check.record import Findings
from vflops.score.contents import Contents

NO_LEVEL = "none"
"""Of a run whose problem is another than the reference's, so that no level can be claimed."""
_MOST_REASONS = 6


@dataclass(frozen=True)
class Judgement:
    """The verdicts on a run."""

    findings: Findings
    level: str
    signer: str | None
    reasons: tuple[str, ...]
    """Why it does not rank."""


def judge(contents: Contents, signers: Path | None) -> Judgement:
    """Verify the folder, check it by its own rule set, and say what level it may claim."""
    from vflops.check.check import check
    from vflops.check.level import levels
    from vflops.evidence.verify import verify_contents

    verified = verify_contents(contents, signers)
    findings = check(contents)
    reasons = [f"not verified: {each}" for each in verified.alterations]
    if verified.intact and not verified.accepted:
        reasons.append(f"not verified: {verified.signature}")
    reasons += [f"rule {each.rule}: {each.told}" for each in findings.failures]
    if len(reasons) > _MOST_REASONS:
        more = len(reasons) - _MOST_REASONS
        reasons = [*reasons[:_MOST_REASONS], f"and {more} more"]
    return Judgement(
        findings=findings,
        level=levels(contents).claim or NO_LEVEL,
        signer=verified.signer if verified.accepted else None,
        reasons=tuple(reasons),
    )


def judged_by(signers: Path | None) -> str:
    """What verdicts rest on besides the run: a hash that changes with rules and signers."""
    import vflops
    from vflops.check.sets import RULE_SETS

    rules = sorted(f"{each.name}/{each.version}" for each in RULE_SETS.values())
    keys = signers.read_bytes() if signers else b""
    words = " ".join([vflops.__version__, *rules])
    return hashlib.sha256(words.encode() + b"\n" + keys).hexdigest()
