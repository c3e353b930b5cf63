"""Derived files, written again to see whether they still follow from the record."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents


class _WithReportAt(RunFolder):
    """The same run with another path for its report."""

    def __init__(self, run: RunFolder, page: Path) -> None:
        super().__init__(run.path, run.record)
        self._page = page

    @property
    def report_file(self) -> Path:
        return self._page


def made_again(folder: Path, name: str) -> bool:
    """Whether ``name`` is byte for byte what this vflops derives from the record."""
    try:
        kept = (folder / name).read_bytes()
        return kept == _made(RunFolder.open(folder), name, kept)
    except Exception:  # a damaged record may raise anything, and does not give this file
        return False


def _made(run: RunFolder, name: str, kept: bytes) -> bytes:
    if name == "score.json":
        from vflops.results.score.scoring import score

        return score(Contents(run)).to_json().encode()
    if name == "findings.json":
        from vflops.results.check.checking import check

        rules = json.loads(kept)["rule_set"]
        return check(Contents(run), rules).to_json().encode()
    from vflops.publish.report.report_page import write_report

    with TemporaryDirectory() as temporary:
        page = Path(temporary, name)
        write_report(Contents(_WithReportAt(run, page)))
        return page.read_bytes()
