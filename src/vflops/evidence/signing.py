"""A run, signed by whoever vouches for it."""

from __future__ import annotations

from pathlib import Path

from vflops.errors import UsageError
from vflops.evidence.manifest import manifest_file, read_manifest, signature_file, write_manifest
from vflops.evidence.names import SIGNATURE
from vflops.evidence.sign import NAMESPACE, sign_file
from vflops.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.score.contents import Contents


def sign_run(folder: RunFolder, key: Path | None = None) -> Path:
    """Sign the manifest of a complete, unaltered run; gives the key that was used."""
    state = Contents(folder).state
    if not state.complete:
        raise UsageError(
            f"{folder.path} is not complete: {state.reason}",
            cure=f"go on with it first: vflops resume {folder.path}",
        )
    if read_manifest(folder.path) is None:
        write_manifest(folder)
    found = [line for line in verify(folder.path).alterations if not line.startswith(SIGNATURE)]
    if found:
        raise UsageError(
            f"{folder.path} is not signed: it is not as it was concluded: {found[0]}",
            cure=f"see all of it: vflops verify {folder.path}",
        )
    return sign_file(manifest_file(folder.path), signature_file(folder.path), key)


def allowed_line(key: Path) -> str | None:
    """The line that names a key in a file of allowed signers; None without its public part."""
    public = key if key.suffix == ".pub" else key.with_name(f"{key.name}.pub")
    try:
        kind, body, *comment = public.read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    name = comment[0] if comment and "@" in comment[0] else "you@example.org"
    return f'{name} namespaces="{NAMESPACE}" {kind} {body}'
