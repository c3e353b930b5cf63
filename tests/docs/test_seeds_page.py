"""The page of measured seeds is what the benchmark writes, and its runs reach today's targets."""

from __future__ import annotations

from benchmarks.seeds import FILE, PAGE, page, rows, target
from tests.support.paths import ROOT


def test_the_page_is_written_from_the_stored_runs() -> None:
    assert (ROOT / PAGE).read_text() == page(ROOT / FILE), "python -m benchmarks.seeds --page"


def test_every_stored_run_reaches_the_target_of_its_profile() -> None:
    runs = rows(ROOT / FILE)
    missed = [run for run in runs if run.quality < target(run.workload, run.profile)]
    assert (len(runs) >= 57, missed) == (True, [])
