"""How often `vflops accept` errs, by simulation with resampled runs of a real machine.

    python -m benchmarks.accept_simulation RUN...    store the figures of these runs
    python -m benchmarks.accept_simulation [--machines 100] [--page]

The runs are stored in docs/measurements/accept.json. A simulated machine draws from them with
replacement: a reference is written from as many runs as it asks for, and as many runs are judged,
then more until the figures are decided or ``max_repeats`` is reached, as `vflops accept --against`
does. A slower machine has its speeds times 0.9, and its times divided by 0.9. ``--page`` writes
docs/measurements/accept.md.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vflops import __version__
from vflops.metrics.statistics import coefficient_of_variation, mean
from vflops.record.files import atomic
from vflops.results.figures import Sample
from vflops.studies.accept.acceptance import Acceptance, JudgedRun
from vflops.studies.accept.judging import judge_figures, overall_verdict
from vflops.studies.accept.measured_figures import MACHINE, MeasuredFigure, MeasuredFigures
from vflops.studies.accept.reference import Judgement, PromisedFigure, Reference, Task
from vflops.studies.accept.repeating import wanted_repeats
from vflops.studies.accept.runs_under_test import read_runs
from vflops.units import percent

FILE = Path("docs/measurements/accept.json")
PAGE = FILE.with_suffix(".md")
SLOWER = 0.9
FLOPS, QUALITY = "image-classification.flops", "image-classification.quality"
SEED = 38
_MAX_REJECTED, _MIN_FOUND = 8, 95
"""The goals, of 100 machines: honest ones that are rejected, and slower ones that are found."""
_DECIDED = ("accepted", "rejected")


class Stored(NamedTuple):
    """One figure of one run."""

    value: float
    unit: str
    better: str
    depends_on_seed: bool

    @property
    def is_timed(self) -> bool:
        """Whether it changes with the speed of the machine; a quality has no unit."""
        return bool(self.unit)


StoredRun = dict[str, Stored]


@dataclass(frozen=True)
class SimulatedRun:
    """A run of a simulated machine."""

    id: str
    figures: MeasuredFigures


@dataclass(frozen=True)
class Case:
    """What is simulated: the variation of the machine, and what the reference says."""

    variation: float | None
    """The coefficient of variation of FLOPS; None for that of the stored runs."""
    tolerance: float
    repeats: int
    max_repeats: int
    only_flops: bool = False
    """Whether FLOPS are the only figure, instead of one of several that are judged together."""
    reference_runs: int | None = None
    """From how many runs the reference is written; None for as many as it asks for."""


class Result(NamedTuple):
    """The outcomes of many machines of one speed."""

    verdicts: Counter[str]
    runs: float
    """The mean number of runs."""
    early: int
    """How many were decided with fewer runs than the reference asks for."""


CASES = (
    *(
        Case(variation, tolerance, repeats, 30)
        for variation in (0.01, 0.02, 0.03, 0.05)
        for tolerance, repeats in ((0.03, 3), (0.05, 3), (0.05, 5), (0.05, 10))
    ),
    Case(None, 0.05, 3, 10),
    Case(None, 0.05, 10, 30),
    Case(None, 0.05, 3, 10, only_flops=True),
    Case(None, 0.05, 3, 10, reference_runs=100),
)


def store(paths: Sequence[str]) -> None:
    """Write the figures of real runs to the file."""
    runs = [
        {
            name: [mean([s.value for s in samples]), f.unit, f.better, f.depends_on_seed]
            for name, f in run.figures.items()
            for samples in f.by_place.values()
            if not f.reasons
        }
        for run in read_runs(sorted(paths))
    ]
    text = ",\n".join(json.dumps(run) for run in runs)
    atomic.write_bytes(FILE, f'{{"runs": [\n{text}\n]}}\n'.encode())


def stored(path: Path = FILE) -> list[StoredRun]:
    """Return the figures of the stored runs."""
    runs = json.loads(path.read_text())["runs"]
    return [{name: Stored(*fields) for name, fields in run.items()} for run in runs]


def with_variation(runs: Sequence[StoredRun], variation: float | None) -> list[StoredRun]:
    """Return runs whose speeds and times vary less, in the same order and proportion.

    Logarithms are scaled, so that a run stays as much faster or slower than the others, relative to
    the variation, in all of its figures.
    """
    if variation is None:
        return list(runs)
    flops = [math.log(run[FLOPS].value) for run in runs]
    exponent = variation / math.sqrt(mean([(x - mean(flops)) ** 2 for x in flops]))
    centres = {
        name: mean([math.log(run[name].value) for run in runs])
        for name, figure in runs[0].items()
        if figure.is_timed
    }
    return [
        {
            name: figure._replace(
                value=math.exp(centres[name] + exponent * (math.log(figure.value) - centres[name]))
            )
            if name in centres
            else figure
            for name, figure in run.items()
        }
        for run in runs
    ]


class Machine:
    """Draws runs of a machine with replacement; each has a seed of its own."""

    def __init__(self, runs: Sequence[StoredRun], speed: float, draw: random.Random) -> None:
        self._runs, self._speed, self._draw, self._drawn = runs, speed, draw, 0

    def run(self) -> SimulatedRun:
        """Return the next run."""
        self._drawn += 1
        figures: MeasuredFigures = {}
        for name, item in self._draw.choice(self._runs).items():
            scale = self._speed if item.better == "higher" else 1 / self._speed
            value = item.value * scale if item.is_timed else item.value
            figures[name] = MeasuredFigure(
                name,
                item.unit,
                "higher" if item.better == "higher" else "lower",
                item.depends_on_seed,
                by_place={MACHINE: [Sample(self._drawn, value)]},
            )
        return SimulatedRun(f"run-{self._drawn}", figures)


def written_reference(runs: Sequence[SimulatedRun], case: Case) -> Reference:
    """Return a reference as `vflops accept --write` makes it: the means of the runs."""
    promises = []
    for name, figure in runs[0].figures.items():
        if case.only_flops and name != FLOPS:
            continue
        key = "at_least" if figure.better == "higher" else "at_most"
        values = [run.figures[name].by_place[MACHINE][0].value for run in runs]
        fields = {key: mean(values), "unit": figure.unit, "tolerance": case.tolerance}
        promises.append(PromisedFigure.model_validate({"name": name, **fields}))
    judgement = Judgement(repeats=case.repeats, max_repeats=case.max_repeats)
    return Reference(
        name="simulated", task=Task(profile="tiny"), judgement=judgement, figure=tuple(promises)
    )


def judged(reference: Reference, machine: Machine) -> Acceptance:
    """Judge a machine as `vflops accept --against` does: more runs until it is decided."""
    runs = [machine.run() for _ in range(reference.judgement.repeats)]
    while True:
        acceptance = _acceptance(reference, runs)
        wanted = wanted_repeats(acceptance)
        if wanted <= len(runs):
            return acceptance
        runs += [machine.run() for _ in range(wanted - len(runs))]


def simulate(runs: Sequence[StoredRun], case: Case, speed: float, machines: int) -> Result:
    """Return the verdicts on machines of a relative speed, each with a reference of its own."""
    draw = random.Random(SEED)
    population = with_variation(runs, case.variation)
    verdicts, numbers, early = Counter[str](), [], 0
    for _ in range(machines):
        good = Machine(population, 1.0, draw)
        known = [good.run() for _ in range(case.reference_runs or case.repeats)]
        reference = written_reference(known, case)
        tested = Machine(population, speed, draw)
        few = [tested.run() for _ in range(case.repeats - 1)]
        early += _acceptance(reference, few).verdict in _DECIDED
        acceptance = judged(reference, tested)
        verdicts[acceptance.verdict] += 1
        numbers.append(len(acceptance.runs))
    return Result(verdicts, mean(numbers), early)


def page(runs: Sequence[StoredRun], results: Mapping[Case, tuple[Result, Result]]) -> str:
    """Return the page with the table of all cases."""
    flops = [run[FLOPS].value for run in runs]
    qualities = [run[QUALITY].value for run in runs]
    machines = sum(next(iter(results.values()))[0].verdicts.values())
    head = _HEAD.format(
        runs=len(runs),
        figures=len(runs[0]),
        machines=machines,
        version=__version__,
        variation=percent(coefficient_of_variation(flops), digits=0),
        quality=percent(coefficient_of_variation(qualities)),
    )
    return head + "".join(_rows(results)) + _tail(results)


def _rows(results: Mapping[Case, tuple[Result, Result]]) -> Iterator[str]:
    for case, (honest, slower) in results.items():
        cells = [
            _variation_text(case),
            percent(case.tolerance, digits=0),
            f"{case.repeats}, {case.max_repeats}",
        ]
        for result in (honest, slower):
            cells += [str(result.verdicts[key]) for key in ("accepted", "rejected", "undecided")]
            cells.append(f"{result.runs:.1f}")
        yield f"| {' | '.join(cells)} |\n"


def _tail(results: Mapping[Case, tuple[Result, Result]]) -> str:
    pairs = [(_case_text(case), *pair) for case, pair in results.items()]
    rejected = [
        f"{honest.verdicts['rejected']} ({name})"
        for name, honest, _ in pairs
        if honest.verdicts["rejected"] > _MAX_REJECTED
    ]
    accepted = [
        f"{slower.verdicts['accepted']} ({name})"
        for name, _, slower in pairs
        if slower.verdicts["accepted"] > 100 - _MIN_FOUND
    ]
    unsure = [
        f"{slower.verdicts['rejected']} ({name})"
        for name, _, slower in pairs
        if slower.verdicts["rejected"] < _MIN_FOUND
    ]
    loaded = [pair for case, pair in results.items() if (case.variation, case.repeats) == (None, 3)]
    together, alone, known = (honest.verdicts["rejected"] for honest, _ in loaded)
    text = _TAIL.format(
        early=sum(honest.early + slower.early for _, honest, slower in pairs),
        honest=f"Missed: {'; '.join(rejected)}." if rejected else "It is met in every row.",
        accepted=f"Missed: {'; '.join(accepted)}." if accepted else "It is met in every row.",
        slower=f"{'; '.join(unsure)}.",
        alone=alone,
        known=known,
        together=together,
    )
    return "".join(
        textwrap.fill(line, 100, subsequent_indent="  ", break_on_hyphens=False) + "\n"
        for line in text.splitlines()
    )


def _case_text(case: Case) -> str:
    tolerance = percent(case.tolerance, digits=0)
    return f"CV {_variation_text(case)}, tolerance {tolerance}, {case.repeats} repeats"


def _variation_text(case: Case) -> str:
    if case.variation is not None:
        return percent(case.variation, digits=0)
    known = f", reference of {case.reference_runs} runs" if case.reference_runs else ""
    return "as measured" + (", FLOPS only" if case.only_flops else known)


def _acceptance(reference: Reference, runs: Sequence[SimulatedRun]) -> Acceptance:
    figures = judge_figures(reference, runs)
    records = tuple(
        JudgedRun(
            run=run.id,
            path="",
            created_utc="",
            machine="",
            nodes=(MACHINE,),
            hosts=(),
            manifest_sha256=None,
            is_valid=True,
            faults=(),
        )
        for run in runs
    )
    return Acceptance(
        verdict=overall_verdict(records, (), figures),
        reference=reference,
        vflops=__version__,
        runs=records,
        faults=(),
        figures=figures,
        notes=(),
    )


_HEAD = """# Acceptance, simulated

Written by `python -m benchmarks.accept_simulation --page` from [accept.json](accept.json), with
vflops {version}.

Measured on 2026-11-19 on two x86 cores (a virtual machine), **loaded by other work**: {runs} runs
of image classification, profile `tiny`, with one thread, seeds 1 to {runs} and no ceilings. Their
FLOPS have a coefficient of variation (CV) of {variation}, their quality one of {quality}. Such runs
are no evidence: 6 of them were disturbed so clearly that `vflops accept` refuses them, and repeats
that vary like this within one run fail the rule `steady`. No quiet machine was at hand, so most
rows shrink the deviations of speeds and times to a smaller CV, and leave the quality as it is.

A simulated machine draws its runs from these, with replacement. {machines} honest machines and
{machines} that are 10 % slower (speeds × 0.9, times ÷ 0.9) are judged for each row, each against a
reference of its own: the means of as many runs as the reference asks for. {figures} figures are
judged (throughput, FLOPS, VFLOPS, time to quality, quality) with 95 % confidence. Undecided
machines run more repeats, up to the largest number. *Runs* are means.

| CV of FLOPS | tolerance | repeats, at most | honest: accepted | rejected | undecided | runs | \
slower: accepted | rejected | undecided | runs |
|---|---|---|---|---|---|---|---|---|---|---|
"""
_TAIL = """
Signed off with fewer runs than the reference asks for: {early} of all machines.

- **Honest machines.** The goal is at most 8 rejections of 100. {honest}
- **Machines that are 10 % slower.** The goal is that 95 of 100 are not accepted. {accepted} \
Fewer than 95 are *rejected*, and most of the others undecided: {slower}
- **Why honest machines are rejected.** Judged by FLOPS alone, {alone} of the loaded ones are, \
against {together} by all figures: speeds and times of a run vary together, so that the number of \
figures is not the cause, and a correction for it (Holm's) is not applied. Against a reference of \
100 runs, {known} are rejected, so that the error of the reference is only a part of it. The other \
part is the distribution: on the loaded machine few runs are much faster than the rest, and three \
slow ones agree by chance, which Student's t takes for a small spread.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*")
    parser.add_argument("--machines", type=int, default=100)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.runs:
        store(arguments.runs)
        return
    runs = stored()
    results = {
        case: (
            simulate(runs, case, 1.0, arguments.machines),
            simulate(runs, case, SLOWER, arguments.machines),
        )
        for case in CASES
    }
    text = page(runs, results)
    if arguments.page:
        atomic.write_bytes(PAGE, text.encode())
    print(text)


if __name__ == "__main__":
    main()
