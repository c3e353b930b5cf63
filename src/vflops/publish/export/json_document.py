"""Settings, system, score and findings of runs in one JSON document."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import vflops
from vflops.record.files import atomic
from vflops.record.files.document import Document
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score


def runs_json(runs: Iterable[Contents]) -> str:
    """Return the parts of each run, each with the name of its schema."""
    return atomic.json_text(
        {"vflops": vflops.__version__, "runs": [_run(contents) for contents in runs]}
    )


def _run(contents: Contents) -> dict[str, Any]:
    folder = contents.folder
    parts: dict[str, Document | None] = {
        "run": folder.record,
        "system": SystemRecord.read(folder.system_file) if folder.system_file.is_file() else None,
        "score": score(contents),
        "findings": check(contents),
    }
    return {name: json.loads(part.to_json()) if part else None for name, part in parts.items()}
