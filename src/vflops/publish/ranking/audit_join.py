"""Joins audits to the submissions that they are about, and decides which of them count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import ValidationError

from vflops.publish.evidence.signed_audit import NAMESPACE, check_audit
from vflops.publish.evidence.ssh_signature import Signature, require_signers
from vflops.publish.ranking.audit_files import AuditFile, UnusableAudit, read_audits
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.entry_audits import (
    MAX_PARTS,
    AuditedPart,
    EntryAudit,
    JoinedAudits,
    Standing,
)
from vflops.publish.ranking.stranger_text import clean
from vflops.record.files.document import first_fault
from vflops.results.evidence.audit_record import AuditedSegment, AuditRecord, AuditVerdict

_AGREED = ("same bits", "within tolerance")
UNSIGNED = "unsigned"


class AuditSources(NamedTuple):
    """Where the audits of a ranking come from."""

    folder: Path | None = None
    """The folder with the audits; None without any."""
    signers: Path | None = None
    """Who may audit, in the format of SSH's allowed signers; None if no audit counts."""


NO_AUDITS = AuditSources()


@dataclass(frozen=True)
class AuditedEntries:
    """Entries with their audits, and the audits that belong to none of them."""

    entries: list[Entry]
    unusable: tuple[UnusableAudit, ...] = ()


def join_audits(entries: Sequence[Entry], sources: AuditSources) -> AuditedEntries:
    """Return ``entries`` with their audits."""
    if sources.folder is None:
        return AuditedEntries(list(entries))
    if sources.signers is not None:
        require_signers(sources.signers, NAMESPACE)
    by_run: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        if entry.run:
            by_run.setdefault(entry.run, []).append(number)
    joined: dict[int, _Joining] = {}
    unusable: list[UnusableAudit] = []
    for item in read_audits(sources.folder):
        if isinstance(item, UnusableAudit):
            unusable.append(item)
            continue
        same_run = by_run.get(clean(item.record.run), [])
        try:
            found = _audits(item, [entries[number] for number in same_run], sources.signers)
        except ValidationError as error:
            reason = f"out of bounds: {first_fault(error).replace('value error, ', '')}"
            unusable.append(UnusableAudit(place=item.place, run=item.record.run, reason=reason))
            continue
        if not same_run:
            reason = "its run was not submitted"
            unusable.append(UnusableAudit(place=item.place, run=item.record.run, reason=reason))
        for number, audit in zip(same_run, found, strict=True):
            if audit is not None:
                joined.setdefault(number, _Joining()).add(audit, item.record)
    return AuditedEntries(
        [
            entry.model_copy(update={"audited": joined[number].result()})
            if number in joined
            else entry
            for number, entry in enumerate(entries)
        ],
        tuple(unusable),
    )


def _audits(
    audit: AuditFile, entries: Sequence[Entry], signers: Path | None
) -> list[EntryAudit | None]:
    """Return the audit as one of each of ``entries``; None if it is one of another of them."""
    if not entries:
        return []
    record, signature = audit.record, check_audit(audit.path, signers)
    hashes = (record.run_sha256, record.manifest_sha256)
    matching = [(entry.run_sha256, entry.manifest_sha256) == hashes for entry in entries]
    # Copies with the same record differ in signature and derived files only.
    exact = [entry for entry, matches in zip(entries, matching, strict=True) if matches]
    digests = {entry.digest for entry in exact if entry.digest}
    matching = [
        matches or entry.digest in digests for entry, matches in zip(entries, matching, strict=True)
    ]
    return [
        _entry_audit(record, signature, entry, matches=matches)
        if matches or not any(matching)
        else None
        for entry, matches in zip(entries, matching, strict=True)
    ]


def _entry_audit(
    record: AuditRecord, signature: Signature | None, entry: Entry, *, matches: bool
) -> EntryAudit:
    standing, reason = _standing(signature, entry, matches=matches)
    auditor = (signature and (signature.signer or signature.key)) or UNSIGNED
    shown = record.segments[:MAX_PARTS]
    return EntryAudit(
        auditor=auditor,
        day=record.created_utc[:10],
        standing=standing,
        reason=reason,
        verdict=_verdict(record),
        detail=record.detail,
        steps=record.steps_audited,
        steps_total=record.steps_total,
        samples_per_s_recorded=_median(row.samples_per_s_recorded for row in record.segments),
        samples_per_s_here=_median(row.samples_per_s_here for row in record.segments),
        same_stack=record.same_stack,
        parts=tuple(map(_part, shown)),
        more_parts=len(record.segments) - len(shown),
    )


def _verdict(record: AuditRecord) -> AuditVerdict:
    """Return the verdict; older versions confirmed what agrees within a tolerance, too."""
    is_exact = record.same_stack and all(row.verdict == "same bits" for row in record.segments)
    return "consistent" if record.verdict == "confirmed" and not is_exact else record.verdict


def _standing(
    signature: Signature | None, entry: Entry, *, matches: bool
) -> tuple[Standing, str | None]:
    """Return whether an audit counts, and why not."""
    if signature is None:
        return "unverified", "it is not signed"
    if not signature.good:
        return "unverified", "its signature is not valid"
    if {signature.signer, signature.key} & entry.submitters:
        return "own", "the submitter signed it"
    if signature.signer is None:
        return "unverified", "its key is not that of a listed auditor"
    if not matches:
        return "not matching", "it is of a run with this id, but with another manifest"
    return "counts", None


def _part(row: AuditedSegment) -> AuditedPart:
    return AuditedPart(
        name=row.name,
        reason=row.reason,
        verdict=row.verdict,
        samples_per_s_recorded=row.samples_per_s_recorded,
        samples_per_s_here=row.samples_per_s_here,
    )


@dataclass
class _Joining:
    """The audits of one entry so far."""

    audits: list[EntryAudit] = field(default_factory=list)
    agreeing: dict[AuditVerdict, list[AuditRecord]] = field(default_factory=dict)

    def add(self, audit: EntryAudit, record: AuditRecord) -> None:
        """Add an audit."""
        self.audits.append(audit)
        if audit.counts and audit.verdict in ("confirmed", "consistent"):
            self.agreeing.setdefault(audit.verdict, []).append(record)

    def result(self) -> JoinedAudits:
        """Return all audits, those that count first."""
        confirming = self.agreeing.get("confirmed", [])
        consistent = self.agreeing.get("consistent", [])
        total = max((record.steps_total for record in (*confirming, *consistent)), default=0)
        return JoinedAudits(
            audits=tuple(sorted(self.audits, key=lambda audit: (not audit.counts, audit.day))),
            steps=min(_covered(confirming), total),
            consistent_steps=min(_covered(consistent), total),
            steps_total=total,
        )


def _covered(records: Iterable[AuditRecord]) -> int:
    """Return how many steps agreed in ``records``; a step in several parts counts once."""
    intervals: dict[tuple[int, str | None], list[tuple[int, int]]] = {}
    for record in records:
        for row in record.segments:
            if row.verdict in _AGREED and row.first < row.last:
                intervals.setdefault((row.job, row.candidate), []).append((row.first, row.last))
    covered = 0
    for parts in intervals.values():
        end = 0
        for first, last in sorted(parts):
            covered += max(last - max(first, end), 0)
            end = max(end, last)
    return covered


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
