"""What a run folder holds now, for whoever compares it with its manifest: each file read once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from vflops.evidence.manifest import FilePin, Manifest, read_manifest
from vflops.evidence.names import Listing, listing
from vflops.record.digest import Digest, file_digest
from vflops.score.contents import Contents


class Held:
    """The names, the hashes and the manifest of a folder, each when it is first asked for."""

    def __init__(self, folder: Path, digest: Callable[[Path], Digest] = file_digest) -> None:
        self.folder = folder
        self._digest = digest

    @classmethod
    def of(cls, contents: Contents) -> Held:
        """Of a run that others read too: they share the hashes."""
        return cls(contents.folder.path, contents.digest)

    @cached_property
    def listing(self) -> Listing:
        """Every file that belongs to the evidence, and what cannot."""
        return listing(self.folder)

    @cached_property
    def manifest(self) -> Manifest | None:
        """What was pinned; None without a manifest."""
        return read_manifest(self.folder)

    def is_as(self, pin: FilePin) -> bool:
        """Whether a file is what it was when it was pinned."""
        return self.digest(pin.path) == (pin.sha256, pin.size_bytes)

    def digest(self, name: str) -> Digest:
        """A file as it is now."""
        return self._digest(self.folder / name)
