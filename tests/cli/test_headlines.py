"""Runs that reach their target have the same headline everywhere, however far they exceed it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

import vflops
from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.trained_runs import (
    WORKLOAD,
    HandmadeRun,
    course,
    job,
    write_telemetry,
)
from vflops.publish.export.csv_table import runs_csv
from vflops.publish.export.run_metrics import runs_openmetrics
from vflops.publish.ranking import summary
from vflops.publish.report import figure_tables
from vflops.publish.report.results import results
from vflops.record.readout.contents import Contents
from vflops.results.figures import samples
from vflops.results.score import figure_text, score_tables
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.studies.accept.measured_figures import measured_figures
from vflops.studies.compare.run_view import read_run_view
from vflops.studies.predict.from_run import read_inputs

Headline = Callable[[Contents, Score], object]
"""Returns the VFLOPS that a reader of the run sees first."""


def _terminal(contents: Contents, scored: Score) -> object:
    equation = figure_text.result(scored.trainings[0])[1]
    rows = dict(score_tables.training_rows(scored.trainings[0]))
    return [text.partition(" (")[0] for text in (equation, rows["VFLOPS"], rows["VFLOPS/W"])]


def _report(contents: Contents, scored: Score) -> object:
    rows = dict(figure_tables.figure_rows(scored.trainings))
    tiles = {tile["name"]: tile["value"] for tile in figure_tables.tiles(scored.trainings[0])}
    return results(scored)[0].speed.figure, tiles["VFLOPS"], tiles["VFLOPS/W"], rows["VFLOPS"]


def _compare(contents: Contents, scored: Score) -> object:
    named = {name.name: values for name, values in samples(scored).items()}
    return named["VFLOPS"], named["VFLOPS per watt"]


def _ranking(contents: Contents, scored: Score) -> object:
    (result,) = summary.results(contents, scored)
    return result.score, result.per_watt


def _csv(contents: Contents, scored: Score) -> object:
    (row,) = csv.DictReader(StringIO(runs_csv([contents])))
    return row["VFLOPS [FLOPS]"], row["penalty"], row["VFLOPS a watt [FLOPS/W]"]


def _openmetrics(contents: Contents, scored: Score) -> object:
    names = ("vflops_valid_flops{", "vflops_valid_flops_per_watt{", "vflops_quality_penalty{")
    lines = runs_openmetrics([contents]).splitlines()
    found = [line.rpartition(" ")[2] for line in lines if line.startswith(names)]
    assert len(found) == 3
    return found


def _accept(contents: Contents, scored: Score) -> object:
    found = measured_figures(read_run_view(contents.folder.path))
    names = (f"{WORKLOAD}.vflops", f"{WORKLOAD}.vflops_per_watt")
    return [found[name].by_place for name in names]


def _python(contents: Contents, scored: Score) -> object:
    (row,) = vflops.Run(contents.folder.path).score()
    return row["vflops"], row["vflops_per_watt"]


def _prediction(contents: Contents, scored: Score) -> object:
    return read_inputs(contents).values["training.quality_factor"]


HEADLINES: tuple[Headline, ...] = (
    _terminal,
    _report,
    _compare,
    _ranking,
    _csv,
    _openmetrics,
    _accept,
    _python,
    _prediction,
)


def _reached(folder: Path, patch: pytest.MonkeyPatch, quality: float) -> Contents:
    run = HandmadeRun(folder, patch)
    run.plan(job(), ceilings=MEASUREMENTS)
    attempt = run.attempt(1, 1000.0, *course(0.3, 0.6, quality))
    write_telemetry(attempt, 1000.0, 60)
    write_system(run.folder)
    run.end()
    score(Contents(run.folder)).write(run.folder.score_file)
    return Contents(run.folder)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[float, Contents]:
    """Runs that differ in their quality only; the target is 0.8."""
    folder = tmp_path_factory.mktemp("headlines")
    with pytest.MonkeyPatch.context() as patch:
        return {
            quality: _reached(folder / str(quality), patch, quality)
            for quality in (0.7, 0.8, 0.9, 0.99)
        }


@pytest.mark.parametrize("headline", HEADLINES)
def test_runs_above_the_target_have_equal_headlines(
    headline: Headline, runs: dict[float, Contents], monkeypatch: pytest.MonkeyPatch
) -> None:
    HandmadeRun(runs[0.9].folder.path.parent / "closed", monkeypatch)  # its task counts as closed
    found = {quality: headline(run, score(run)) for quality, run in runs.items()}
    assert found[0.8] == found[0.9] == found[0.99]
    assert found[0.7] != found[0.8], "a missed target is punished"


def test_the_figures_as_published_differ(
    runs: dict[float, Contents], monkeypatch: pytest.MonkeyPatch
) -> None:
    HandmadeRun(runs[0.9].folder.path.parent / "closed", monkeypatch)
    published = [summary.results(run, score(run))[0].published or 0.0 for run in runs.values()]
    assert published == sorted(set(published))
    flops = score(runs[0.99]).trainings[0].speed
    assert flops is not None
    assert published[-1] == pytest.approx(flops.flops * (0.99 / 0.8) ** 5)
