"""A run of an open task shows quality, time and FLOPS; nothing presents its VFLOPS as a result."""

from __future__ import annotations

import pytest

from tests.support.sample_parts import MEASUREMENTS
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.cli.terminal.run_display import Progress
from vflops.publish.export.csv_table import runs_csv
from vflops.publish.report.figure_tables import figure_rows, tiles
from vflops.publish.report.report_page import write_report
from vflops.publish.report.results import results
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Finding
from vflops.results.figures import training_figures
from vflops.results.score import figure_text, score_tables
from vflops.results.score.scoring import score
from vflops.units import quantity


def trained_to(run: HandmadeRun, target: float, quality: float = 0.9) -> RunFolder:
    """A run with one training that reached ``quality``."""
    run.plan(job(1, target=target), ceilings=MEASUREMENTS)
    run.attempt(1, 1000.0, *course(0.4, 0.6, quality))
    run.end()
    return run.folder


def goal(folder: RunFolder) -> Finding:
    return next(finding for finding in check(Contents(folder)).findings if finding.rule == "goal")


def test_a_target_of_a_thousandth_has_no_vflops_headline_and_fails(
    handmade_run: HandmadeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained_to(handmade_run, 0.001)
    contents = Contents(folder)
    found = score(contents)
    found.write(folder.score_file)
    write_report(contents)
    Progress(quiet=True).summary(folder, check(contents).model_copy(update={"findings": ()}))
    shown = capsys.readouterr().out
    assert "VFLOPS" not in shown
    assert "open task" in shown and "target 0.001 instead of" in shown
    assert "MFLOPS" in shown and "reached after" in shown
    (headline,) = results(found)
    assert headline.speed.figure.endswith(" MFLOPS")
    assert "no VFLOPS: the task is open" in headline.speed.notes
    failed = goal(folder)
    assert failed.verdict == "fail"
    assert "its own target 0.001 is too easy to be a goal" in failed.evidence
    assert ": a quality of 0.9" in failed.evidence
    assert "--set target=0.9" in failed.evidence


@pytest.mark.parametrize("quality", [0.999, 1.0])
def test_a_suggested_target_is_one_that_settings_accept(
    handmade_run: HandmadeRun, quality: float
) -> None:
    assert goal(trained_to(handmade_run, 0.001, quality)).evidence.endswith("--set target=0.99")


def test_the_figures_of_an_open_task_are_named_apart(handmade_run: HandmadeRun) -> None:
    contents = Contents(trained_to(handmade_run, 0.7))  # the quality 0.9 exceeds it
    (training,) = score(contents).trainings
    figures = training_figures(training)
    assert figures["vflops"].value is None and figures["vflops_per_watt"].value is None
    assert training.speed is not None
    assert figures["open_vflops"].value == training.speed.flops  # the factor is at most 1
    assert figures["open_vflops"].label == "open VFLOPS"
    rows = score_tables.training_rows(training)
    assert "VFLOPS" not in dict(rows)
    published = figure_text.published_flops(training.speed.flops, training.speed.vflops)
    capped = quantity(training.speed.flops, "VFLOPS")
    note = f"({published}; own task: not comparable)"
    assert dict(rows)["open VFLOPS"] == f"{capped} {note}" and "as published" in note
    assert dict(figure_rows([training]))["open VFLOPS"] == [capped]
    tile = next(tile for tile in tiles(training) if tile["name"] == "open VFLOPS")
    assert tile["value"] == capped and published in tile["note"]
    assert [name for name, _ in rows[:3]] == ["time to quality", "FLOPS", "quality"]
    header, row = (line.split(",") for line in runs_csv([contents]).splitlines()[:2])
    cells = dict(zip(header, row, strict=True))
    assert cells["VFLOPS [FLOPS]"] == "" and float(cells["open VFLOPS [FLOPS]"]) > 0
    assert cells["task"].startswith("open ")


def test_an_open_task_with_a_plausible_target_meets_its_goal(handmade_run: HandmadeRun) -> None:
    found = goal(trained_to(handmade_run, 0.7))
    assert (found.verdict, found.evidence) == ("pass", "image-classification: top-1 accuracy 0.7")


def test_a_closed_task_shows_vflops_and_those_as_published(handmade_run: HandmadeRun) -> None:
    (training,) = score(Contents(trained_to(handmade_run, 0.8))).trainings
    assert training.speed is not None
    assert training.quality.penalty == pytest.approx((0.9 / 0.8) ** 5)
    assert training.quality.penalty_capped == 1
    assert training.speed.vflops_capped == training.speed.flops
    rows = dict(score_tables.training_rows(training))
    assert rows["VFLOPS"] == "2.20 MVFLOPS (3.97 as published)"
    published = "1.802 = (0.9 / 0.8)^5 as published"
    assert rows["quality factor"] == f"1: the target was reached ({published})"


def test_below_the_target_the_capped_factor_is_the_same(handmade_run: HandmadeRun) -> None:
    (training,) = score(Contents(trained_to(handmade_run, 0.8, quality=0.7))).trainings
    assert training.speed is not None
    assert training.quality.penalty_capped == training.quality.penalty
    assert training.speed.vflops_capped == training.speed.vflops
    assert "published" not in dict(score_tables.training_rows(training))["VFLOPS"]


def test_an_accuracy_above_one_in_a_stored_run_is_found(handmade_run: HandmadeRun) -> None:
    folder = trained_to(handmade_run, 0.8, quality=1.7)
    evaluated = next(f for f in check(Contents(folder)).findings if f.rule == "evaluated")
    assert evaluated.verdict == "fail"
    assert "top-1 accuracy is 1.7, but it lies between 0 and 1" in evaluated.evidence
