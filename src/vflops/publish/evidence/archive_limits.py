"""Limits on what an archive may hold, so that a small file cannot fill a disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vflops.errors import FolderError


class ArchiveRefused(FolderError):
    """Raised for an archive that is too large or does not hold exactly one run folder."""


@dataclass(frozen=True)
class Limits:
    """Limits on the content of one archive."""

    files: int = 1_000_000
    size_bytes: int = 8 << 30
    """The maximum size of all files together, except for states."""
    state_bytes: int = 64 << 30
    """The maximum size of all states, checkpoints and weights, that an archive holds for audits."""
    ratio: int = 200
    """The maximum number of extracted bytes per byte of the archive; logs reach about 30."""
    spare_bytes: int = 64 << 20
    """Extracted bytes allowed on top of the ratio, for small archives that compress well."""
    file_bytes: Mapping[str, int] = field(default_factory=dict)
    """The maximum size of one file, by the end of its name, such as ``.json``."""

    def check_file(self, name: str, size_bytes: int) -> None:
        """Raise if a single file is too large."""
        limit = next(
            (limit for end, limit in self.file_bytes.items() if name.endswith(end)), size_bytes
        )
        if size_bytes > limit:
            raise ArchiveRefused(
                f"{name} has {size_bytes >> 20} MiB, but the limit is {limit >> 20} MiB"
            )

    def check(self, source: str, *, files: int, size_bytes: int, state_bytes: int = 0) -> None:
        """Raise if there are too many files or bytes; ``size_bytes`` excludes states."""
        if files > self.files:
            raise ArchiveRefused(f"{source} holds more than {self.files} files")
        if size_bytes > self.size_bytes:
            raise ArchiveRefused(f"{source} holds more than {self.size_bytes >> 20} MiB")
        if state_bytes > self.state_bytes:
            raise ArchiveRefused(
                f"{source} holds more than {self.state_bytes >> 20} MiB of checkpoints"
            )

    def check_ratio(self, archive: Path, size_bytes: int) -> None:
        """Raise if the archive is far smaller than what it extracts to."""
        packed = archive.stat().st_size
        if size_bytes > self.spare_bytes + self.ratio * packed:
            raise ArchiveRefused(
                f"{archive} extracts to more than {self.spare_bytes >> 20} MiB plus "
                f"{self.ratio} times its own size of {packed} bytes"
            )


LIMITS = Limits()
