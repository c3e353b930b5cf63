"""Regeneration of derived files, to check that they match the record."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.record.files import atomic
from vflops.record.files.machine_faults import is_machine_fault
from vflops.record.files.read_once import read_bytes
from vflops.record.files.strict_json import parse_json
from vflops.record.folder import RunFolder
from vflops.record.installed_package import installed_package
from vflops.record.readout.contents import Contents

REPORT = "report.html"


class _RunWithReportAt(RunFolder):
    """The same run with another path for its report."""

    def __init__(self, run: RunFolder, page: Path) -> None:
        super().__init__(run.path, run.record)
        self._page = page

    @property
    def report_file(self) -> Path:
        return self._page


def matches_record(contents: Contents, name: str) -> bool:
    """Whether the file ``name`` is byte for byte what this version derives from the record."""
    try:
        existing = read_bytes(contents.folder.path / name)
        return existing == _regenerate(contents, name, existing)
    except Exception as error:  # reading a damaged record may raise anything
        if is_machine_fault(error):
            raise
        return False


def derived_here(contents: Contents, name: str) -> bool:
    """Whether the run states that its file ``name`` was derived by the code installed here.

    If it was, the same record gives the same bytes; the bytes of a report also depend on the
    packages that draw its charts.
    """
    package, installed = contents.folder.record.package, installed_package()
    if package is None or package.sha256 is None:
        return False
    same_code = (package.sha256, package.extensions) == (installed.sha256, installed.extensions)
    return same_code and (name != REPORT or package.charts == installed.charts)


def _regenerate(contents: Contents, name: str, existing: bytes) -> bytes:
    if name == "score.json":
        from vflops.results.score.scoring import score_text

        return contents.once(score_text).encode()
    if name == "findings.json":
        from vflops.results.check.checking import check
        from vflops.results.check.rule_sets import rule_set_of

        rules = parse_json(existing)["rule_set"]
        if rules == rule_set_of(contents.folder.record.settings).name:
            return contents.once(check).to_json().encode()
        return check(contents, rules).to_json().encode()
    return _report(contents.folder)


def _report(run: RunFolder) -> bytes:
    from vflops.publish.report.report_page import write_report

    try:
        with TemporaryDirectory() as temporary:
            page = Path(temporary, REPORT)
            write_report(Contents(_RunWithReportAt(run, page)))
            return page.read_bytes()
    except OSError as error:
        raise atomic.cannot_write(run.report_file, error) from error
