"""Signatures of audits."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.evidence.ssh_signature import sign_file


def audit_signature(path: Path) -> Path:
    """Return the path of the signature of an ``audit.json``."""
    return path.with_name(f"{path.name}.sig")


def sign_audit(path: Path, key: Path | None = None) -> Path:
    """Sign an ``audit.json``, and return the key that was used."""
    return sign_file(path, audit_signature(path), key)
