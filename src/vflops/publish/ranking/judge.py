"""The verdict on a run by ``vflops verify`` and ``vflops check``."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vflops.publish.ranking.entry import Answered
from vflops.record.files.machine_faults import names_machine_fault
from vflops.record.readout.contents import Contents
from vflops.results.check.challenge_rule import Demand
from vflops.results.check.findings import Findings

NO_LEVEL = "none"
"""The level of a run whose problem differs from the reference.

The other levels (hardware, system and free) say what may differ from the reference.
"""
_MAX_REASONS = 6
_RECOMPUTED = ("score.json", "findings.json")
"""The derived files to recompute. Reports are not: no page shows them, and each takes long."""


class TrustedKeys(NamedTuple):
    """Lists of keys, in the format of SSH's allowed signers."""

    signers: Path | None = None
    """Who may submit; None if submissions need no signature."""
    keepers: Path | None = None
    """Who may issue challenges; None if runs need no challenge."""


NO_KEYS = TrustedKeys()


@dataclass(frozen=True)
class Judgement:
    """The verdict on a run."""

    findings: Findings
    level: str
    digest: str
    """A hash of the files in the manifest; empty if the run was altered."""
    signer: str | None
    key: str | None
    """The key of a good signature, whether or not its owner is known."""
    reasons: tuple[str, ...]
    """Why the run does not rank; empty if it does."""
    challenge: Answered | None
    """The challenge of a keeper that the run answers; None without a list of keepers."""
    machine_fault: bool
    """Whether a reason is a fault of this machine, such as a full disk."""


def judge(contents: Contents, trusted: TrustedKeys) -> Judgement:
    """Verify a run, check it by its own rule set, and determine the level that it may claim."""
    from vflops.publish.evidence.challenges import demand as challenge_demand
    from vflops.publish.evidence.verify import verify_contents
    from vflops.results.check.checking import check, demand_challenge
    from vflops.results.check.level import levels

    verification = verify_contents(contents, trusted.signers, _RECOMPUTED)
    findings, answered = contents.once(check), None
    if trusted.keepers is not None:
        demand = challenge_demand(contents.folder.record, trusted.keepers)
        findings = demand_challenge(findings, contents, demand)
        answered = _answered(contents, demand)
    state = contents.state
    reasons = [] if state.complete else [f"it did not finish: {state.reason}"]
    reasons += [f"not verified: {alteration}" for alteration in verification.alterations]
    if verification.unaltered and not verification.accepted:
        reasons.append(f"not verified: {verification.signature}")
    failures = findings.failures
    if not state.complete:  # the first reason says so already
        failures = [finding for finding in failures if finding.rule != "complete"]
    reasons += [f"rule {finding.rule}: {finding.text}" for finding in failures]
    challenge, signer = contents.folder.record.challenge, verification.signer
    if answered and challenge and signer not in (None, challenge.issued.submitter):
        issued = f"its challenge was issued to {challenge.issued.submitter}"
        reasons.append(f"{issued}, but {signer} signed it")
    machine_fault = any(names_machine_fault(reason) for reason in reasons)
    if len(reasons) > _MAX_REASONS:
        more = len(reasons) - _MAX_REASONS
        reasons = [*reasons[:_MAX_REASONS], f"and {more} more"]
    return Judgement(
        findings=findings,
        level=contents.once(levels).claim or NO_LEVEL,
        digest=_record_digest(contents) if verification.unaltered else "",
        signer=verification.signer if verification.accepted else None,
        key=verification.key,
        reasons=tuple(reasons),
        challenge=answered,
        machine_fault=machine_fault,
    )


def _answered(contents: Contents, demand: Demand) -> Answered | None:
    """Return the challenge that a run answers; None if it does not meet the demand."""
    run = contents.folder.record.challenge
    if run is None or demand.keeper is None:
        return None
    return Answered(
        keeper=demand.keeper,
        day=run.issued.issued_utc[:10],
        submitter=run.issued.submitter,
        nonce=run.issued.nonce,
        number=run.number,
    )


def _record_digest(contents: Contents) -> str:
    """Return a hash of the recorded files, which is the same for all copies of a run."""
    from vflops.results.evidence.integrity import FolderIntegrity

    manifest = contents.once(FolderIntegrity.of).manifest
    pins = sorted(f"{pin.sha256} {pin.path}" for pin in manifest.files) if manifest else []
    return hashlib.sha256("\n".join(pins).encode(errors="replace")).hexdigest()


def verdict_context(trusted: TrustedKeys) -> str:
    """Return a hash of everything but the run that verdicts depend on: code, rules, keys."""
    from vflops.record.installed_package import installed_package
    from vflops.results.check.rule_sets import RULE_SETS

    rules = sorted(f"{rule_set.name}/{rule_set.version}" for rule_set in RULE_SETS.values())
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() if path else "" for path in trusted]
    package = installed_package()
    versions = " ".join([package.version, str(package.sha256), *rules])
    return hashlib.sha256("\n".join([versions, *digests]).encode()).hexdigest()
