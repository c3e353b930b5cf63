"""How long a ranking of many submissions takes to build, update, open and sort.

    python benchmarks/ranking_speed.py --submissions 10000

A submission is a small generated run folder that meets every rule of ``practice``: one training of
three epochs with a minute of telemetry. Generating them takes longer than ranking them. CPU times
are printed besides wall times, because other work on the machine affects them less.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from multiprocessing import Pool
from pathlib import Path

from tests.support.browser import Browser
from tests.support.ranking_runs import submit_many
from vflops.publish.ranking.static_site import build

PART = 250
TIMED = "(() => {{ const began = performance.now(); {}; return performance.now() - began }})()"
"""JavaScript that returns the time of an expression, including layout."""
LONGEST_S = 40.0
"""The time limit of a build."""
LAID_OUT = "document.body.getBoundingClientRect()"


def timed(label: str, folder: Path, site: Path) -> bool:
    """Whether a build stayed within the time limit."""
    before, cpu = time.perf_counter(), sum(os.times()[:4])
    built = build([folder], site)
    wall_s, cpu_s = time.perf_counter() - before, sum(os.times()[:4]) - cpu
    print(
        f"{label}: {wall_s:.1f} s, {cpu_s:.1f} s CPU; {built.read} read, "
        f"{len(built.ranking.ranked)} ranked, {len(built.ranking.unranked)} not, "
        f"{built.written} pages written",
        flush=True,
    )
    return wall_s <= LONGEST_S


def browse(page: Path) -> None:
    print(f"index.html has {page.stat().st_size / 1e6:.2f} MB")
    with Browser() as browser:
        before = time.perf_counter()
        tab = browser.open(page)
        print(f"open: {time.perf_counter() - before:.2f} s, including the tab")
        load_ms = tab.run("performance.timing.loadEventEnd - performance.timing.navigationStart")
        elements = tab.run("document.all.length")
        print(f"      {load_ms} ms by the clock of the page; {elements} elements")
        for key in ("score", "system", "day", "rank"):
            click = f"document.querySelector('[data-sort={key}]').click(); {LAID_OUT}"
            print(f"sort by {key}: {tab.run(TIMED.format(click)):.0f} ms")
        search = "document.getElementById('search')"
        typed = f"{search}.value = 'acc 1'; {search}.dispatchEvent(new Event('input')); {LAID_OUT}"
        print(f"search: {tab.run(TIMED.format(typed)):.0f} ms")
        assert not tab.errors, tab.errors
        assert not tab.requests, tab.requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="Keep the submissions and the site here.")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="vflops-ranking-"))
    runs, site = folder / "submissions", folder / "site"
    if not runs.exists():
        before = time.perf_counter()
        starts = range(0, given.submissions, PART)
        parts = [(runs, start, min(PART, given.submissions - start)) for start in starts]
        with Pool() as pool:
            pool.starmap(submit_many, parts, chunksize=1)
        print(f"{given.submissions} made in {time.perf_counter() - before:.1f} s", flush=True)
    in_time = [timed("build", runs, site), timed("again", runs, site)]
    submit_many(runs, given.submissions, 1)
    in_time.append(timed("one more", runs, site))
    browse(site / "index.html")
    if given.folder is None:
        shutil.rmtree(folder)
    if not all(in_time):
        sys.exit(f"a build took more than {LONGEST_S:.0f} s")


if __name__ == "__main__":
    main()
