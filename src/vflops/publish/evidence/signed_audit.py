"""Signatures of audits."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.evidence.ssh_signature import Signature, check_signature, sign_file
from vflops.results.evidence.audit_record import AUDIT_FILE

NAMESPACE = "vflops-audit"
"""A key that may only sign runs cannot sign audits."""


def audit_signature(path: Path) -> Path:
    """Return the path of the signature of an ``audit.json``."""
    return path.with_name(f"{path.name}.sig")


def audit_file(path: Path | None) -> Path | None:
    """Return the ``audit.json`` that ``path`` is or contains; None if it is another kind."""
    if path is None:
        return None
    file = path / AUDIT_FILE if path.is_dir() else path
    return file if file.name == AUDIT_FILE and file.is_file() else None


def sign_audit(path: Path, key: Path | None = None) -> Path:
    """Sign an ``audit.json``, and return the key that was used."""
    return sign_file(path, audit_signature(path), key, namespace=NAMESPACE)


def check_audit(path: Path, signers: Path | None) -> Signature | None:
    """Return what is known about the signature of an ``audit.json``; None if it is not signed.

    ``signers`` lists the keys of auditors.
    """
    signature = audit_signature(path)
    if not signature.exists():
        return None
    return check_signature(path, signature, signers, namespace=NAMESPACE)
