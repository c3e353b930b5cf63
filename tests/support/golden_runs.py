"""The stored run folders of released versions."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.support.paths import ROOT

FOLDER = ROOT / "tests" / "golden"
GOLDEN = sorted(FOLDER.rglob("*.tar.xz"))
"""Those of 0.1.0, then those of later versions in folders of their own."""


def name_of(archive: Path) -> str:
    """Return the name of an archive, after its version unless that is 0.1.0."""
    return archive.relative_to(FOLDER).as_posix().removesuffix(".tar.xz")


def extracted(archive: Path, parent: Path) -> Path:
    """Extract a stored run folder below ``parent``, and return its path."""
    with tarfile.open(archive) as packed:
        packed.extractall(parent, filter="data")
        return parent / packed.getnames()[0].partition("/")[0]
