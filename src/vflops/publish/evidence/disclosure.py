"""What an archive tells about its author beyond the results: paths, host names, program output.

An anonymous copy (``anonymous``) leaves it out. Nothing else can: the log has the hashes of these
files, and each line of the log has the hash of the line before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vflops.errors import FolderError
from vflops.record.files.document import read_json
from vflops.record.folder import RunFolder
from vflops.results.evidence.evidence_names import is_page, listing

_MAX_NAMED = 5
"""The most paths or host names that a line lists."""
_HOST_FIELDS = ("host", "name", "node", "reference", "submitted_from")


def disclosures(folder: RunFolder) -> list[str]:
    """Return one line per kind of private fact that the files of a run contain."""
    paths: dict[str, None] = {}
    hosts: dict[str, None] = {}
    outputs = 0
    for name in listing(folder.path).files:
        file = Path(name)
        if is_page(name):
            continue
        if file.name in ("run.json", "job.json"):
            paths |= dict.fromkeys(absolute_paths(_read(folder.path / name)))
        elif file.match("node-*.json") or file.match("nodes/*.json"):
            record = _read(folder.path / name)
            hosts |= dict.fromkeys(
                value for field in _HOST_FIELDS if isinstance(value := record.get(field), str)
            )
        elif file.suffix in (".log", ".sh"):
            outputs += 1
    lines = []
    if paths:
        lines.append(f"paths: {_listed(paths)}")
    if hosts:
        lines.append(f"host names: {_listed(hosts)}")
    if outputs:
        lines.append(f"scripts and what programs printed: {outputs} files *.log, *.sh")
    return lines


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except FolderError:
        return {}


def absolute_paths(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value that is an absolute path."""
    if isinstance(value, str):
        if value.startswith(("/", "~/")) and len(value) > 1 and "\n" not in value:
            yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from absolute_paths(item)


def _listed(names: dict[str, None]) -> str:
    shown = list(names)[:_MAX_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
