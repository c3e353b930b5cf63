"""Limits on what a run may hold, packed or not, so that reading it ends soon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vflops.errors import FolderError
from vflops.record.files.regular_file import MAX_RATIO, SPARE_BYTES
from vflops.results.evidence.evidence_names import walk
from vflops.results.evidence.manifest import MAX_MANIFEST_BYTES


class ArchiveRefused(FolderError):
    """Raised for a run that is too large, or an archive without exactly one run folder."""


@dataclass(frozen=True)
class Limits:
    """Limits on the files of one run."""

    files: int = 1_000_000
    size_bytes: int = 8 << 30
    """The maximum size of all files together, except for states."""
    state_bytes: int = 64 << 30
    """The maximum size of all states, checkpoints and weights, that an archive holds for audits."""
    ratio: int = MAX_RATIO
    """The maximum number of extracted bytes per byte of the archive; logs reach about 30."""
    spare_bytes: int = SPARE_BYTES
    """Extracted bytes allowed on top of the ratio, for small archives that compress well."""
    file_bytes: Mapping[str, int] = field(
        default_factory=lambda: {".jsonl": 1 << 30, ".json": MAX_MANIFEST_BYTES}
    )
    """The maximum size of one file, by the end of its name, such as ``.json``."""

    def check_folder(self, folder: Path) -> None:
        """Raise if the files of a run folder that verification covers are too many or too large.

        None of them is opened.
        """
        entries = ((name, entry) for name, entry in walk(folder) if not entry.is_symlink())
        sizes = ((name, entry.stat().st_size) for name, entry in entries if entry.is_file())
        self.check_files(str(folder), sizes)

    def check_files(self, source: str, sizes: Iterable[tuple[str, int]]) -> None:
        """Raise if files with these names and sizes are too many or too large."""
        total_bytes = 0
        for count, (name, size_bytes) in enumerate(sizes, start=1):
            self.check_file(name, size_bytes)
            total_bytes += size_bytes
            self.check(source, files=count, size_bytes=total_bytes)

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
