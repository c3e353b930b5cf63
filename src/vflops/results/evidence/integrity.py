"""What a run folder holds now, beside what was pinned in its manifest; each file is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vflops.record.files.digest import Digest, file_digest
from vflops.record.readout.contents import Contents
from vflops.results.evidence.evidence_names import DERIVED, MANIFEST, Listing, is_page, listing
from vflops.results.evidence.line_marks import differences
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
class Compared:
    """What of the recorded files is not as it was pinned."""

    altered: dict[str, list[str]]
    """By file, in words."""
    notes: tuple[str, ...]
    """What is worth knowing and alters nothing."""


class FolderIntegrity:
    """The names, the hashes and the manifest of a folder, each when it is first asked for."""

    def __init__(self, folder: Path, digest: Callable[[Path], Digest] = file_digest) -> None:
        self.folder = folder
        self._digest = digest

    @classmethod
    def of(cls, contents: Contents) -> FolderIntegrity:
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

    @cached_property
    def compared(self) -> Compared:
        """The recorded files beside their pins; nothing where nothing was pinned yet."""
        notes: list[str] = []
        altered = {} if self.manifest is None else dict(self._altered(self.manifest, notes))
        return Compared(altered, tuple(notes))

    def is_as(self, pin: FilePin) -> bool:
        """Whether a file is what it was when it was pinned."""
        return self.digest(pin.path) == (pin.sha256, pin.size_bytes)

    def digest(self, name: str) -> Digest:
        """A file as it is now."""
        return self._digest(self.folder / name)

    def false_lines(self, manifest: Manifest) -> list[str]:
        """What the manifest says of the lines of logs that are as pinned, and is not so."""
        lines = {pin.path: pin for pin in manifest.logs}
        logs = {pin.path: pin for pin in manifest.files if is_log(pin.path)}
        strays = sorted(lines.keys() - logs)
        found = [f"{MANIFEST}: has lines of {name}, which is no log of it" for name in strays]
        for name, pin in logs.items():
            if name not in lines:
                found.append(f"{MANIFEST}: the lines of {name} are not pinned")
                continue
            as_pinned = name in self.listing.files and self.is_as(pin)
            if as_pinned and pin_log(self.folder, name) != lines[name]:
                found.append(f"{MANIFEST}: the marks and the last hash of {name} are of others")
        return found

    def _altered(self, manifest: Manifest, notes: list[str]) -> Iterator[tuple[str, list[str]]]:
        logs = {pin.path: pin for pin in manifest.logs}
        pinned = {pin.path: pin for pin in manifest.files}
        here = set(self.listing.files)
        for name, pin in pinned.items():
            if name not in here:
                yield name, [f"{name}: missing"]
            elif not self.is_as(pin):
                if name.endswith(".log") and self._grew(pin):
                    notes.append(f"{name}: what was printed went on after the run was concluded")
                else:
                    yield name, [f"{name}: {words}" for words in self._changes(pin, logs.get(name))]
        for name in self.listing.files:
            if is_page(name) and name not in pinned:
                notes.append(f"{name}: a page that nothing vouches for; no archive holds it")
            elif name not in pinned and name not in DERIVED:
                yield name, [f"{name}: added, it was not there when the run was concluded"]

    def _grew(self, pin: FilePin) -> bool:
        """Whether a file only got longer: a process may print on after its job ended."""
        return pin_file(self.folder, pin.path, size_bytes=pin.size_bytes) == pin

    def _changes(self, pin: FilePin, log: LogPin | None) -> list[str]:
        if log is not None:
            found = differences(log.marks, pin_log(self.folder, pin.path).marks)
            return found or ["changed, and no line of it: its line ends are others"]
        now_bytes = self.digest(pin.path).size_bytes
        size = f"{pin.size_bytes} bytes then, {now_bytes} now"
        return [f"changed ({'the size is the same' if pin.size_bytes == now_bytes else size})"]


def altered_record(contents: Contents) -> tuple[str, ...]:
    """What of the recorded files is not as it was pinned; nothing where nothing was pinned yet.

    For rules: it asks for no signature and no derived file, so findings do not follow from
    themselves.
    """
    held = contents.once(FolderIntegrity.of)
    return tuple(line for words in held.compared.altered.values() for line in words)
