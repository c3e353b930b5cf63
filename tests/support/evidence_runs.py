"""Concluded run folders, and hostile archives."""

from __future__ import annotations

import bz2
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.evidence.manifest import write_manifest
from vflops.results.score.scoring import score


def concluded(folder: RunFolder) -> RunFolder:
    """Write score and manifest of the run, without the page, which takes longest."""
    score(Contents(folder)).write(folder.score_file)
    write_manifest(folder)
    return folder


@dataclass(frozen=True)
class Entry:
    """An entry of a hostile archive."""

    name: str
    data: bytes = b""
    type: bytes = tarfile.REGTYPE
    link: str = ""
    size: int | None = None
    """The size that the header claims; None: the true one."""


def header(entry: Entry) -> bytes:
    info = tarfile.TarInfo(entry.name)
    info.type, info.linkname = entry.type, entry.link
    info.size = len(entry.data) if entry.size is None else entry.size
    if 0 <= info.size < 8 << 30:
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "surrogateescape")
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def tar_bytes(*entries: Entry, end: bytes = bytes(1024)) -> bytes:
    out = io.BytesIO()
    for entry in entries:
        out.write(header(entry) + entry.data + bytes(-len(entry.data) % 512))
    return out.getvalue() + end


def write_archive(path: Path, *entries: Entry, end: bytes = bytes(1024)) -> Path:
    path.write_bytes(bz2.compress(tar_bytes(*entries, end=end)))
    return path


def run_entry(folder: RunFolder) -> Entry:
    """Return the ``run.json`` that an archive of a run needs."""
    return Entry(f"{folder.record.id}/run.json", (folder.path / "run.json").read_bytes())
