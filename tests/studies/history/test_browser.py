"""The pages of ``vflops compare`` and ``vflops history`` in a real browser: drawn, and quiet."""

from __future__ import annotations

from pathlib import Path

from tests.support.browser import Browser
from tests.support.dated_runs import Dated, dated_run
from vflops.studies.compare import compare_page as compare_page
from vflops.studies.compare.comparing import compare, read_sides
from vflops.studies.history import history_page as history_page
from vflops.studies.history.run_history import history


def test_both_pages_draw_without_an_error_or_a_request(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    speeds = (1.0, 1.01, 0.99), (1.06, 1.05, 1.07), (1.0, 1.01, 0.99)
    made = [dated_run(runs, Dated(day, slower)) for day, slower in enumerate(speeds)]
    given = read_sides([str(each.path) for each in made[:2]])
    compare_page.write_page(compare(given), given, tmp_path / "compare.html")
    history_page.write_page(history(runs), "runs", tmp_path / "history.html")
    with Browser() as browser:
        for name in ("compare", "history"):
            tab = browser.open(tmp_path / f"{name}.html")
            assert tab.run("document.querySelectorAll('svg, canvas').length") > 0, name
            assert "FLOPS" in tab.run("document.body.innerText")
            assert (tab.errors, tab.requests) == ([], []), name
