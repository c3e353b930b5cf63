"""A run, signed by whoever vouches for it."""

from __future__ import annotations

from pathlib import Path

from vflops.publish.evidence.ssh_signature import NAMESPACE, check_signature, sign_file
from vflops.publish.evidence.whole import must_be_whole
from vflops.record.folder import RunFolder
from vflops.results.evidence.manifest import manifest_file, signature_file

UNNAMED = "you@example.org"
"""Stands where a key does not say whose it is."""


def sign_run(folder: RunFolder, key: Path | None = None) -> Path:
    """Sign the manifest of a complete, unaltered run; gives the key that was used."""
    must_be_whole(folder, "signed")
    return sign_file(manifest_file(folder.path), signature_file(folder.path), key)


def signing_key(folder: RunFolder) -> str | None:
    """The key that a run is signed with, by its fingerprint; None without a good signature."""
    manifest, signature = manifest_file(folder.path), signature_file(folder.path)
    if not manifest.is_file() or not signature.is_file():
        return None
    return check_signature(manifest, signature, None).key


def allowed_line(key: Path) -> str | None:
    """The line that names a key in a file of allowed signers; None without its public part."""
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        kind, body, *comment = public.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    name = comment[0] if comment and "@" in comment[0] else UNNAMED
    return f'{name} namespaces="{NAMESPACE}" {kind} {body}'
