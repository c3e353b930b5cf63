"""Regeneration of derived files, to check that they still match the record."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.record.files.read_once import read_bytes
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents


class _RunWithReportAt(RunFolder):
    """The same run with another path for its report."""

    def __init__(self, run: RunFolder, page: Path) -> None:
        super().__init__(run.path, run.record)
        self._page = page

    @property
    def report_file(self) -> Path:
        return self._page


def matches_record(folder: Path, name: str) -> bool:
    """Whether the file ``name`` is byte for byte what this version derives from the record."""
    try:
        existing = read_bytes(folder / name)
        return existing == _regenerate(RunFolder.open(folder), name, existing)
    except Exception:  # reading a damaged record may raise anything
        return False


def _regenerate(run: RunFolder, name: str, existing: bytes) -> bytes:
    if name == "score.json":
        from vflops.results.score.scoring import score

        return score(Contents(run)).to_json().encode()
    if name == "findings.json":
        from vflops.results.check.checking import check

        rules = json.loads(existing)["rule_set"]
        return check(Contents(run), rules).to_json().encode()
    from vflops.publish.report.report_page import write_report

    with TemporaryDirectory() as temporary:
        page = Path(temporary, name)
        write_report(Contents(_RunWithReportAt(run, page)))
        return page.read_bytes()
