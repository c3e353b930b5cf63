"""The verdict on a run by ``vflops verify`` and ``vflops check``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from vflops.record.files.machine_faults import names_machine_fault
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings

NO_LEVEL = "none"
"""The level of a run whose problem differs from the reference.

The other levels (hardware, system and free) say what may differ from the reference.
"""
_MAX_REASONS = 6
_RECOMPUTED = ("score.json", "findings.json")
"""The derived files to recompute. Reports are not: no page shows them, and each takes long."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on a run."""

    findings: Findings
    level: str
    digest: str
    """A hash of the files in the manifest; empty if the run was altered."""
    signer: str | None
    reasons: tuple[str, ...]
    """Why the run does not rank; empty if it does."""
    machine_fault: bool
    """Whether a reason is a fault of this machine, such as a full disk."""


def judge(contents: Contents, signers: Path | None) -> Judgement:
    """Verify a run, check it by its own rule set, and determine the level that it may claim."""
    from vflops.publish.evidence.verify import verify_contents
    from vflops.results.check.checking import check
    from vflops.results.check.level import levels

    verification = verify_contents(contents, signers, _RECOMPUTED)
    findings = contents.once(check)
    state = contents.state
    reasons = [] if state.complete else [f"it did not finish: {state.reason}"]
    reasons += [f"not verified: {alteration}" for alteration in verification.alterations]
    if verification.unaltered and not verification.accepted:
        reasons.append(f"not verified: {verification.signature}")
    failures = findings.failures
    if not state.complete:  # the first reason says so already
        failures = [finding for finding in failures if finding.rule != "complete"]
    reasons += [f"rule {finding.rule}: {finding.text}" for finding in failures]
    machine_fault = any(names_machine_fault(reason) for reason in reasons)
    if len(reasons) > _MAX_REASONS:
        more = len(reasons) - _MAX_REASONS
        reasons = [*reasons[:_MAX_REASONS], f"and {more} more"]
    return Judgement(
        findings=findings,
        level=contents.once(levels).claim or NO_LEVEL,
        digest=_record_digest(contents) if verification.unaltered else "",
        signer=verification.signer if verification.accepted else None,
        reasons=tuple(reasons),
        machine_fault=machine_fault,
    )


def _record_digest(contents: Contents) -> str:
    """Return a hash of the recorded files, which is the same for all copies of a run."""
    from vflops.results.evidence.integrity import FolderIntegrity

    manifest = contents.once(FolderIntegrity.of).manifest
    pins = sorted(f"{pin.sha256} {pin.path}" for pin in manifest.files) if manifest else []
    return hashlib.sha256("\n".join(pins).encode(errors="replace")).hexdigest()


def verdict_context(signers: Path | None) -> str:
    """Return a hash of everything but the run that verdicts depend on: code, rules, signers."""
    from vflops.record.installed_package import installed_package
    from vflops.results.check.rule_sets import RULE_SETS

    rules = sorted(f"{rule_set.name}/{rule_set.version}" for rule_set in RULE_SETS.values())
    keys = signers.read_bytes() if signers else b""
    package = installed_package()
    versions = " ".join([package.version, str(package.sha256), *rules])
    return hashlib.sha256(versions.encode() + b"\n" + keys).hexdigest()
