"""The stored run folders of released versions."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.support.paths import ROOT

GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.tar.xz"))


def name_of(archive: Path) -> str:
    """Return the name of an archive without its suffixes."""
    return archive.name.removesuffix(".tar.xz")


def extracted(archive: Path, parent: Path) -> Path:
    """Extract a stored run folder below ``parent``, and return its path."""
    with tarfile.open(archive) as packed:
        packed.extractall(parent, filter="data")
        return parent / packed.getnames()[0].partition("/")[0]
