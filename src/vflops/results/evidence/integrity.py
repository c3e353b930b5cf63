"""Integrity of a run folder: comparison of its files with its manifest, reading each once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from vflops.errors import FolderError
from vflops.record.files.digest import Digest, file_digest
from vflops.record.files.regular_file import SPARE_BYTES
from vflops.record.readout.contents import Contents
from vflops.results.evidence.evidence_names import DERIVED, MANIFEST, Listing, is_page, listing
from vflops.results.evidence.line_marks import describe_changes
from vflops.results.evidence.manifest import (
    FilePin,
    LogPin,
    Manifest,
    is_log,
    pin_file,
    pin_log,
    read_manifest,
)


@dataclass(frozen=True)
class ManifestComparison:
    """The recorded files that differ from the manifest."""

    altered: dict[str, list[str]]
    """Descriptions of the changes, by file."""
    notes: tuple[str, ...]
    """Remarks on differences that are allowed."""


class FolderIntegrity:
    """Names, hashes and manifest of a run folder, each read on first use."""

    def __init__(self, folder: Path, digest: Callable[[Path], Digest] = file_digest) -> None:
        self.folder = folder
        self._digest = digest
        self._digests: dict[str, Digest] = {}

    @classmethod
    def of(cls, contents: Contents) -> FolderIntegrity:
        """Return the integrity of a run, using hashes that ``contents`` has already computed."""
        return cls(contents.folder.path, contents.digest)

    @cached_property
    def listing(self) -> Listing:
        """The files that are evidence, and the entries that cannot be."""
        return listing(self.folder)

    @cached_property
    def manifest(self) -> Manifest | None:
        """The manifest; None if the folder has no manifest."""
        return read_manifest(self.folder)

    @cached_property
    def comparison(self) -> ManifestComparison:
        """How recorded files differ from the manifest; empty without a manifest."""
        notes: list[str] = []
        altered = {} if self.manifest is None else dict(self._altered(self.manifest, notes))
        return ManifestComparison(altered, tuple(notes))

    def matches(self, pin: FilePin) -> bool:
        """Whether the file of ``pin`` is unchanged since it was pinned.

        A file of another size is not read.
        """
        return self._size(pin.path) == pin.size_bytes and self.digest(pin.path).sha256 == pin.sha256

    def digest(self, name: str) -> Digest:
        """Return the digest of a file when it was first read."""
        if name not in self._digests:
            self._digests[name] = self._digest(self.folder / name)
        return self._digests[name]

    def _size(self, name: str) -> int:
        """Return the size of a file when it was first read, or its present size."""
        if name in self._digests:
            return self._digests[name].size_bytes
        try:
            return (self.folder / name).stat().st_size
        except OSError as error:
            raise FolderError(f"cannot read {name}: {error.strerror or error}") from error

    def line_pin_faults(self, manifest: Manifest) -> list[str]:
        """Return the faults in the manifest's line marks, which are checked for unchanged logs."""
        line_pins = {pin.path: pin for pin in manifest.logs}
        logs = {pin.path: pin for pin in manifest.files if is_log(pin.path)}
        strays = sorted(line_pins.keys() - logs)
        faults = [
            f"{MANIFEST}: has lines of {name}, which is not one of its logs" for name in strays
        ]
        present = set(self.listing.files)
        for name, pin in logs.items():
            if name not in line_pins:
                faults.append(f"{MANIFEST}: the lines of {name} are not pinned")
                continue
            unchanged = name in present and self.matches(pin)
            if unchanged and pin_log(self.folder, name) != line_pins[name]:
                faults.append(f"{MANIFEST}: the marks and the last hash of {name} do not match it")
        return faults

    def _altered(self, manifest: Manifest, notes: list[str]) -> Iterator[tuple[str, list[str]]]:
        logs = {pin.path: pin for pin in manifest.logs}
        pinned = {pin.path: pin for pin in manifest.files}
        present = set(self.listing.files)
        for name, pin in pinned.items():
            if name not in present:
                yield name, [f"{name}: missing"]
            elif not self.matches(pin):
                if name.endswith(".log") and self._grew(pin):
                    notes.append(f"{name}: output was added after the run was concluded")
                else:
                    yield (
                        name,
                        [f"{name}: {text}" for text in self._changes(pin, logs.get(name))],
                    )
        for name in self.listing.files:
            if is_page(name) and name not in pinned:
                notes.append(f"{name}: a page that is not pinned; archives leave it out")
            elif name not in pinned and name not in DERIVED:
                yield name, [f"{name}: added after the run was concluded"]
        yield from self._added_folders(manifest, notes)

    def _added_folders(
        self, manifest: Manifest, notes: list[str]
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield folders without files that the manifest does not know.

        Older manifests do not list folders: there, only one with the name of a file is altered.
        """
        for name in self.listing.empty_folders:
            if manifest.empty_folders is None and not PurePosixPath(name).suffix:
                notes.append(f"{name}: an empty folder, which manifests of older versions omit")
            elif name not in (manifest.empty_folders or ()):
                yield name, [f"{name}: a folder that was added after the run was concluded"]

    def _grew(self, pin: FilePin) -> bool:
        """Whether a file only grew, because a process may print after its job ended."""
        return pin_file(self.folder, pin.path, size_bytes=pin.size_bytes) == pin

    def _changes(self, pin: FilePin, log: LogPin | None) -> list[str]:
        size_bytes = self._size(pin.path)
        if log is not None and size_bytes <= pin.size_bytes + SPARE_BYTES:
            changed = describe_changes(log.marks, pin_log(self.folder, pin.path).marks)
            return changed or ["only its line endings changed"]
        size = f"from {pin.size_bytes} to {size_bytes} bytes"
        return [f"changed ({'same size' if pin.size_bytes == size_bytes else size})"]


def altered_record(contents: Contents) -> tuple[str, ...]:
    """Return how recorded files differ from the manifest; empty without a manifest.

    Signature and derived files are ignored, so that the findings of rules do not depend on
    themselves.
    """
    integrity = contents.once(FolderIntegrity.of)
    return tuple(line for lines in integrity.comparison.altered.values() for line in lines)
