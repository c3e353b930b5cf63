"""Stores what a release writes, so that every later version is tested on it.

python -m tools.store_release RUN NAME   pack the folder of a run that this version made, and note
                                         the file formats of this version
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import vflops
from vflops.record.folder import RunFolder, RunRecord

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
SCHEMAS = ROOT / "docs" / "schemas"
FORMATS = "formats.json"
_LEFT_OUT = ("checkpoint", "report.html", "manifest.json", "manifest.json.sig")
_LEFT_OUT_SUFFIXES = (".npy", ".npz", ".log", ".lock")
"""What no figure is computed from: pages, weights, predictions and output."""


def store(run: Path, name: str, golden: Path = GOLDEN) -> Path:
    """Pack the run folder and note the formats; return the path of the archive."""
    folder = RunFolder.open(run)
    writer = folder.record.versions.get("vflops")
    if writer != vflops.__version__:
        raise SystemExit(f"{run} was made by vflops {writer}, not by {vflops.__version__}")
    path = golden / writer / f"{name}.tar.xz"
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        archive.add(folder.path, folder.record.id, filter=_kept)
    stored = golden / FORMATS
    known = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {}
    known[writer] = formats()
    stored.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    return path


def formats() -> dict[str, Any]:
    """Return the version of the run folder, and a digest of every file format."""
    return {
        "version": RunRecord.schema_version,
        "digests": {
            path.name: digest(json.loads(path.read_text(encoding="utf-8")))
            for path in sorted(SCHEMAS.glob("*.json"))
        },
    }


def digest(schema: dict[str, Any]) -> str:
    """Return a hash of what a schema allows; texts and version numbers do not matter."""
    text = json.dumps(_without_texts(schema), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_texts(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_texts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _without_texts(value)
        for key, value in schema.items()
        if not (key in ("title", "description") and isinstance(value, str))
        and not (key == "schema" and set(value) == {"const"})
    }


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    return None if name in _LEFT_OUT or name.endswith(_LEFT_OUT_SUFFIXES) else member


if __name__ == "__main__":
    print(store(Path(sys.argv[1]), sys.argv[2]))
