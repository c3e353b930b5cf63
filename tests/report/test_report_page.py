"""The report as a person sees it: in a real browser, offline, of complete and broken runs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from vflops.record.folder import RunFolder
from vflops.report.report import write_report
from vflops.score.contents import Contents
from vflops.score.score import score


def browser() -> str:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        reason = "no chromium on this machine: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


def rendered(page: Path) -> str:
    """The page after its scripts ran, with every host unreachable."""
    result = subprocess.run(
        [
            browser(),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=8000",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return result.stdout


def test_the_charts_draw_without_a_network(run_folder: RunFolder) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    write_report(Contents(run_folder))
    dom = rendered(run_folder.report_file)
    for chart in ("roofline", "search", "messages"):
        drawn = dom.split(f'id="{chart}"')[1]
        assert "<svg" in drawn[:4000], f"chart {chart} was not drawn"
    assert "fp32 matrix product 200 GFLOPS" in dom
    assert "is bound by" in dom


def test_text_from_the_record_is_escaped(run_folder: RunFolder) -> None:
    write_report(Contents(run_folder))
    page = run_folder.report_file.read_text()
    assert "Test CPU &lt;1&gt;" in page
    assert "Test CPU <1>" not in page


def test_an_incomplete_run_says_so_on_its_page(run_folder: RunFolder) -> None:
    log = run_folder.path / "jobs" / "0" / "0" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-3]) + lines[-3][:30])
    write_report(Contents(run_folder))
    page = run_folder.report_file.read_text()
    assert "This run is incomplete" in page
    assert "200 GFLOPS" in page


def test_a_run_that_measured_nothing_still_has_a_page(run_folder: RunFolder) -> None:
    shutil.rmtree(run_folder.path / "jobs")
    run_folder.system_file.unlink()
    write_report(Contents(run_folder))
    assert "no job was started" in run_folder.report_file.read_text()


def test_the_same_folder_gives_the_same_page(run_folder: RunFolder) -> None:
    write_report(Contents(run_folder))
    first = run_folder.report_file.read_bytes()
    write_report(Contents(RunFolder.open(run_folder.path)))
    assert run_folder.report_file.read_bytes() == first
