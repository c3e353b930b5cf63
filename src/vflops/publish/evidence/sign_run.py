"""Signatures of runs."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.evidence.require_intact import require_intact
from vflops.publish.evidence.ssh_signature import NAMESPACE, check_signature, sign_file
from vflops.record.folder import RunFolder
from vflops.results.evidence.manifest import manifest_file, signature_file

UNNAMED = "you@example.org"
"""The placeholder for a key whose comment holds no e-mail address."""


def sign_run(folder: RunFolder, key: Path | None = None) -> Path:
    """Sign the manifest of a complete, unaltered run, and return the key that was used."""
    require_intact(folder, "signed")
    return sign_file(manifest_file(folder.path), signature_file(folder.path), key)


def signing_key(folder: RunFolder) -> str | None:
    """Return the fingerprint of the key that signed the run; None without a good signature."""
    manifest, signature = manifest_file(folder.path), signature_file(folder.path)
    if not manifest.is_file() or not signature.is_file():
        return None
    return check_signature(manifest, signature, None).key


def allowed_line(key: Path, namespace: str = NAMESPACE) -> str | None:
    """Return the line for a key in a file of allowed signers; None if its public
    part cannot be read.
    """
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        key_type, body, *comment = public.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    name = comment[0] if comment and "@" in comment[0] else UNNAMED
    return f'{name} namespaces="{namespace}" {key_type} {body}'
