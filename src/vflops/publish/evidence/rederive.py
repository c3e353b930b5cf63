"""Files that follow from the record, made once more to see whether they still do."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents


class _Aside(RunFolder):
    """The same run, with another place for its page."""

    def __init__(self, run: RunFolder, page: Path) -> None:
        super().__init__(run.path, run.record)
        self._page = page

    @property
    def report_file(self) -> Path:
        return self._page


def made_again(folder: Path, name: str) -> bool:
    """Whether ``name`` is what this vflops makes of the record, byte for byte."""
    try:
        kept = (folder / name).read_bytes()
        return kept == _made(RunFolder.open(folder), name, kept)
    except Exception:  # whatever a damaged record leads to, it does not give this file
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

    with TemporaryDirectory() as place:
        page = Path(place, name)
        write_report(Contents(_Aside(run, page)))
        return page.read_bytes()
