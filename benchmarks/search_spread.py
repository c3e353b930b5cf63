"""How much searches with different seeds vary in work and speed, compared with replays of one.

    python benchmarks/search_spread.py [--profile laptop] [--workers 2] [--for 40s] [--runs 5]
                                       [--set KEY=VALUE] [--out FOLDER] [--picture FILE.png]

Free searches as published, with different seeds and a given time, find different networks, so that
work and speed differ too. This is the objection of HPC AI500 V3.0 to AutoML as a benchmark
(figure 2). Replays of the first search's ledger have the same networks, epochs and samples, so that
only the machine makes a difference. Searches and replays alternate, so that background load affects
both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import altair as alt

from vflops.metrics.statistics import coefficient_of_variation
from vflops.publish.pages.roofline_chart import save
from vflops.record.folder import RunFolder, latest
from vflops.record.readout.contents import Contents
from vflops.results.score.search_score import search_scores
from vflops.units import percent, quantity


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    what: str
    path: Path
    candidates: int
    ops: int
    seconds: float

    @property
    def ops_per_s(self) -> float:
        return self.ops / self.seconds


@dataclass(frozen=True)
class Spread:
    """The spread of one figure over runs of one kind."""

    what: str
    unit: str
    runs: str
    low: float
    high: float
    variation: float
    """Standard deviation over mean."""

    @classmethod
    def of(cls, what: str, unit: str, runs: str, values: list[float]) -> Spread:
        return cls(what, unit, runs, min(values), max(values), coefficient_of_variation(values))


def outcome(what: str, command: list[str], out: Path) -> Outcome:
    """Run the command once, and return its outcome."""
    ended = subprocess.run(
        [sys.executable, "-m", "vflops", *command, "--quiet", "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
    )
    path = latest(out)
    if path is None or ended.returncode not in (0, 1):  # 1: a rule of the check is not met
        sys.exit(f"{what} failed: {ended.stderr}")
    (found,) = search_scores(Contents(RunFolder.open(path)))
    return Outcome(what, path, len(found.candidates), found.ops, found.duration_s)


def rows(outcomes: list[Outcome]) -> list[str]:
    """Return the rows of a table, with the variation in the last one."""
    lines = [
        f"| {item.what} | {item.candidates} | {quantity(item.ops, 'OP')} "
        f"| {item.seconds:.1f} s | {quantity(item.ops_per_s, 'OPS')} |"
        for item in outcomes
    ]
    work = percent(coefficient_of_variation([item.ops for item in outcomes]), digits=2)
    speed = percent(coefficient_of_variation([item.ops_per_s for item in outcomes]), digits=2)
    return [*lines, f"| **coefficient of variation** | | {work} | | {speed} |"]


def spreads(runs: str, outcomes: list[Outcome]) -> list[Spread]:
    """Return the spreads of work and speed of searches or replays."""
    return [
        Spread.of("work", "GOP", runs, [item.ops / 1e9 for item in outcomes]),
        Spread.of("speed", "GOPS", runs, [item.ops_per_s / 1e9 for item in outcomes]),
    ]


def draw(found: list[Spread], path: Path) -> None:
    """Draw the spread of searches and of replays: one bar from least to most."""
    panels = []
    for what, unit in dict.fromkeys((item.what, item.unit) for item in found):
        rows = [
            {
                "runs": item.runs,
                "low": item.low,
                "high": item.high,
                "label": f"± {percent(item.variation, digits=1)}",
            }
            for item in found
            if item.what == what
        ]
        chart = alt.Chart(alt.Data(values=rows)).encode(
            y=alt.Y("runs:N", title=None, sort=None, scale=alt.Scale(paddingInner=0.4)),
            x=alt.X("low:Q", title=f"{what}, {unit}", scale=alt.Scale(zero=True)),
        )
        colour = alt.Color("runs:N", legend=None, sort=None)
        bars = chart.mark_bar(height=14, cornerRadius=2).encode(x2="high:Q", color=colour)
        # A bar without any length is still to be seen.
        ends = chart.mark_tick(thickness=3, height=22).encode(x="high:Q", color=colour)
        words = chart.mark_text(align="left", dx=8).encode(x="high:Q", text="label:N")
        panels.append((bars + ends + words).properties(width=320, height=90))
    save(
        alt.hconcat(*panels).configure_view(stroke=None).configure_axis(grid=False).to_dict(),
        path,
        "png",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--for", dest="time", default="40s")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    if arguments.runs < 2:
        parser.error("a spread takes two runs at least")
    assigned = ["micro.benchmarks=[]", *arguments.set]
    settings = [part for item in assigned for part in ("--set", item)]
    search = ["run", "automl", "--profile", arguments.profile, "--for", arguments.time]
    search += ["--workers", str(arguments.workers), "--set", "search.order=free", *settings]
    with tempfile.TemporaryDirectory() as scratch:
        out = arguments.out or Path(scratch)
        searches, replays = list[Outcome](), list[Outcome]()
        for k in range(1, arguments.runs + 1):
            words = [*search, "--seed", str(k)]
            searches.append(outcome(f"search, seed {k}", words, out / f"search-{k}"))
            ledger = str(searches[0].path)
            words = ["replay", ledger, "--workers", str(arguments.workers)]
            words += ["--set", "micro.benchmarks=[]"]
            replays.append(outcome(f"replay {k} of seed 1", words, out / f"replay-{k}"))
    head = ["| run | candidates | operations | time | speed |", "|---|---|---|---|---|"]
    print("\n".join([*head, *rows(searches), *rows(replays)]))
    if arguments.picture:
        draw([*spreads("searches", searches), *spreads("replays", replays)], arguments.picture)


if __name__ == "__main__":
    main()
