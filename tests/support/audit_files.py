"""Audits of submissions, written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vflops.publish.evidence.signed_audit import sign_audit
from vflops.record.folder import RunFolder, file_hash
from vflops.results.evidence.audit_record import AuditedSegment, AuditRecord

TOTAL_STEPS = 1000


def part(first: int, last: int, **facts: Any) -> AuditedSegment:
    """Return a part that agreed bit by bit."""
    fields = {"job": 1, "reason": "drawn", "verdict": "same bits", "detail": "4 hashes agree"}
    speeds = {"samples_per_s_recorded": 1200.0, "samples_per_s_here": 1180.0}
    return AuditedSegment.model_validate(
        {**fields, **speeds, "first": first, "last": last, **facts}
    )


def audit_record(audited: RunFolder, *parts: AuditedSegment, **facts: Any) -> AuditRecord:
    """Return an audit that confirmed parts of a run."""
    fields = {
        "run": audited.record.id,
        "run_sha256": audited.anchor,
        "manifest_sha256": file_hash(audited.manifest_file),
        "created_utc": "2026-02-01T00:00:00+00:00",
        "versions": {"vflops": "1"},
        "nonce": "00",
        "segments_total": 10,
        "segments_drawn": len(parts),
        "steps_total": TOTAL_STEPS,
        "steps_audited": sum(each.last - each.first for each in parts),
        "same_stack": True,
        "segments": parts,
        "verdict": "confirmed",
        "detail": f"all {len(parts)} parts agree bit by bit",
    }
    return AuditRecord.model_validate({**fields, **facts})


def write_audit(folder: Path, record: AuditRecord, key: Path | None = None) -> Path:
    """Write an audit into ``folder``, signed if a key is given."""
    folder.mkdir(parents=True)
    path = folder / "audit.json"
    record.write(path)
    if key is not None:
        sign_audit(path, key)
    return path
