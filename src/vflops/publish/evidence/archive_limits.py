"""How much an archive may hold: a small file that unpacks to a full disk is no run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vflops.errors import FolderError


class ArchiveRefused(FolderError):
    """A file is not unpacked: what it holds is not, or not only, one run folder."""


@dataclass(frozen=True)
class Limits:
    """The most that is unpacked of one archive."""

    files: int = 1_000_000
    size_bytes: int = 8 << 30
    """Of all files together."""
    ratio: int = 200
    """Bytes that come of one byte of the archive; logs come to 30."""
    spare_bytes: int = 64 << 20
    """That any archive may unpack to, however small it is."""

    def refuse(self, source: str, *, files: int, size_bytes: int) -> None:
        """Refuse more files or bytes than may be."""
        if files > self.files:
            raise ArchiveRefused(f"{source} holds more than {self.files} files")
        if size_bytes > self.size_bytes:
            raise ArchiveRefused(f"{source} holds more than {self.size_bytes >> 20} MiB")

    def refuse_ratio(self, archive: Path, size_bytes: int) -> None:
        """Refuse an archive that is far smaller than what it unpacks to."""
        packed = archive.stat().st_size
        if size_bytes > self.spare_bytes + self.ratio * packed:
            raise ArchiveRefused(
                f"{archive} unpacks to more than {self.spare_bytes >> 20} MiB and "
                f"{self.ratio} times its own {packed} bytes"
            )


LIMITS = Limits()
