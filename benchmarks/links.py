"""Ranks on hosts of their own behind shaped links: what parallel training costs there.

    python benchmarks/links.py [--out FOLDER] [--steps 8] [--rounds 3] [--only FIGURE…]

Network namespaces on this machine (root, iproute2), a rank on each, one core a rank. Three
questions: bagging against data parallelism (V3.0's figure 9), what compression saves (V2.0's
figure 4), and hierarchical against flat exchange between two nodes. A round trains every point
once, in turn, and measures links and codecs by themselves; the time of a step is the median of the
steps after the first few, and of the rounds. Each round trains for some steps more than the one
before, so what was sent more is what those steps sent. Bytes are read from the hosts' interfaces
and set beside those that the ranks counted; times are set beside what `vflops predict` makes of
the figures of the links and of the codecs.

Prints the table of docs/explanation/communication.md, and writes FOLDER/links.json and
FOLDER/links.html.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.links_measure import (
    GIGABIT,
    RANK_BATCH,
    Coding,
    LinkFigures,
    Point,
    Turn,
    Wires,
    measure,
    measure_coding,
    measure_link,
)
from benchmarks.links_page import write_page
from benchmarks.links_result import Links, Measured, markdown, record
from tests.support.links_bench import lacking
from tests.support.links_codec import CODED
from tests.support.links_start import Starter

MORE = 4
"""Steps of a round that the one before has not."""


def points() -> list[Point]:
    """All of them; those of one figure and number of hosts one after the other."""
    slow, fast = Wires(GIGABIT), Wires(10 * GIGABIT)
    found = [Point("bagging", "one host", 1, slow)]
    for count in (2, 4):
        found.append(Point("bagging", "bagging", count, slow, bagging=True))
        found += [
            Point("bagging", f"data parallel, {wires.words}", count, wires)
            for wires in (fast, slow)
        ]
        for precision in CODED:
            found.append(Point("compression", precision, count, slow, precision=precision))
    two = Wires(10 * GIGABIT, GIGABIT, nodes=2)
    for mode in ("all-reduce", "hierarchical", "torus"):
        found.append(Point("modes", mode, 4, two, mode=mode))
    return found


def measured(point: Point, turns: Sequence[Turn]) -> Measured:
    """Its figures over the rounds."""
    step_s = statistics.median(turn.step_s for turn in turns)
    more = turns[-1].steps - turns[0].steps
    return Measured(
        figure=point.figure,
        series=point.series,
        hosts=point.hosts,
        wires=point.wires.words,
        bagging=point.bagging,
        precision=point.precision,
        mode=point.mode,
        step_s=step_s,
        rounds_s=tuple(turn.step_s for turn in turns),
        samples_per_s=point.hosts * RANK_BATCH / step_s,
        parameters=turns[0].parameters,
        wire_bytes=(turns[-1].wire - turns[0].wire) / more,
        counted_bytes=(turns[-1].counted - turns[0].counted) / more,
    )


def links_of(found: Sequence[dict[str, LinkFigures]]) -> dict[str, dict[str, float]]:
    """By precision: the medians of the rounds."""
    return {
        precision: {
            "bandwidth": statistics.median(each[precision].bandwidth for each in found),
            "latency_s": statistics.median(each[precision].latency_s for each in found),
        }
        for precision in found[0]
    }


def coding_of(found: Sequence[Coding]) -> Coding:
    """The medians of the rounds."""
    median = {name: statistics.median(e.coding_s[name] for e in found) for name in CODED}
    return Coding(median, found[0].bucket_bytes, found[0].powersgd_share)


class Bench:
    """All points, their links and codecs, round after round."""

    def __init__(self, wanted: Sequence[Point], folder: Path) -> None:
        self._wanted, self._folder = wanted, folder
        self._turns: dict[Point, list[Turn]] = {each: [] for each in wanted}
        joined = dict.fromkeys((each.hosts, each.wires) for each in wanted if each.hosts > 1)
        self._links: dict[tuple[int, Wires], list[dict[str, LinkFigures]]]
        self._links = {each: [] for each in joined}
        self._codings: dict[int, list[Coding]] = {hosts: [] for hosts, _ in joined}

    def turn(self, number: int, steps: int, starter: Starter) -> None:
        """One round: everything once."""
        for index, point in enumerate(self._wanted):
            begun_s = time.monotonic()
            found = measure(point, steps, self._folder / f"{number}-{index}", starter)
            self._turns[point].append(found)
            _say(
                f"round {number}, {point.hosts} hosts, {point.wires.words}, {point.series}: "
                f"{found.step_s * 1e3:.0f} ms a step ({time.monotonic() - begun_s:.0f} s)"
            )
        first = self._turns[self._wanted[0]][0]
        for (hosts, wires), own in self._links.items():
            there = [each for each in self._wanted if (each.hosts, each.wires) == (hosts, wires)]
            sent = {each.precision for each in there} - {"fp32", "powersgd"}
            precisions = ["fp32", *sorted(sent)]
            own.append(measure_link(wires, hosts, 4 * first.parameters, precisions, starter))
        for hosts, coded in self._codings.items():
            coded.append(measure_coding(hosts, first.graph, starter))

    def result(self) -> tuple[list[Measured], Links]:
        """The medians."""
        links = {f"{n}, {wires.words}": links_of(own) for (n, wires), own in self._links.items()}
        codings = {hosts: coding_of(own) for hosts, own in self._codings.items()}
        return [measured(*each) for each in self._turns.items()], Links(links, codings)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("links"))
    parser.add_argument("--steps", type=int, default=8, help="that count, of the first round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", default=[], help="bagging, compression, modes")
    told = parser.parse_args()
    if told.rounds < 2 or told.steps < 2:
        sys.exit("error: two rounds and two steps at least: what is measured are differences")
    if reason := lacking():
        sys.exit(f"error: {reason}")
    wanted = [e for e in points() if not told.only or e.figure in (*told.only, "bagging")]
    bench = Bench(wanted, told.out / "runs")
    for number in range(1, told.rounds + 1):
        with Starter() as starter:
            bench.turn(number, told.steps + MORE * (number - 1), starter)
    found, links = bench.result()
    record(found, links).write(told.out / "links.json")
    page = told.out / "links.html"
    write_page(found, links, page)
    print(markdown(found, links))
    _say(f"open {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
