"""The page of a run with trainings: its charts as data, and its words."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tests.support.trained_runs import (
    GPU_POWER_W,
    WORKLOAD,
    HandmadeRun,
    course,
    declared,
    job,
    kernels,
    progress,
    write_telemetry,
)
from vflops.publish.report import curves
from vflops.publish.report.report_page import write_report
from vflops.publish.report.training_blocks import Block, blocks, roofline_models
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, Goal, SampleUnit
from vflops.record.formats.job_events import PHASES
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score


def block_of(folder: RunFolder) -> Block:
    contents = Contents(RunFolder.open(folder.path))
    (found,) = blocks(contents, score(contents))
    return found


def page_of(folder: RunFolder) -> str:
    write_report(Contents(RunFolder.open(folder.path)))
    return folder.report_file.read_text()


def rows_of(chart: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Every row of data in a chart, wherever its layers keep it."""
    assert chart is not None
    found = list(chart.get("data", {}).get("values", []))
    for layer in chart.get("layer", []):
        found += rows_of(layer)
    return found


def one_seed(run: HandmadeRun, *qualities: float, power: bool = True) -> RunFolder:
    """A complete run with one seed."""
    run.plan(job())
    notes = course(*qualities)
    place = run.attempt(1, 1000.0, *notes[:-1], kernels(), notes[-1])
    write_telemetry(place, 1000.0, 60, power=power)
    return run.folder


class TestCurves:
    """What the charts draw."""

    def test_throughput_is_samples_over_the_time_of_work(self, handmade_run: HandmadeRun) -> None:
        one_seed(handmade_run, 0.9)
        (line,) = curves.throughput(Contents(handmade_run.folder).training_jobs[0])
        # 200 samples in 2 steps of 1.1 s; compilation before the first note is no part of it.
        assert [y for _, y in line.points] == pytest.approx([200 / 2.2] * 4)
        assert line.points[0][0] == pytest.approx(4 + 3 + 4 * 1.1)

    def test_a_loss_that_was_lost_with_its_attempt_is_not_drawn(
        self, handmade_run: HandmadeRun
    ) -> None:
        handmade_run.plan(job())
        handmade_run.attempt(1, 0.0, *course(0.3)[:-2], progress(15, 99.0, evaluations=1))
        handmade_run.attempt(1, 500.0, *course(0.9, first_step=10))
        points = curves.loss_over_epochs(Contents(handmade_run.folder).training_jobs[0])
        epochs = [epoch for epoch, _ in points]
        assert epochs == sorted(set(epochs))
        assert 99.0 not in [loss for _, loss in points]

    def test_power_is_summed_over_the_accelerators_and_cut_to_the_job(
        self, trained_folder: RunFolder
    ) -> None:
        contents = Contents(trained_folder)
        found = curves.telemetry_lines(contents, contents.training_jobs[0])
        assert [line.attempt for line in found.power] == [0, 1]
        assert {y for line in found.power for _, y in line.points} == {sum(GPU_POWER_W)}
        wall_s = score(contents).trainings[0].wall_s
        times = [x for line in found.power for x, _ in line.points]
        assert min(times) >= 0 and max(times) <= wall_s
        assert times == sorted(times)

    def test_counters_become_bytes_a_second(self, trained_folder: RunFolder) -> None:
        contents = Contents(trained_folder)
        found = curves.telemetry_lines(contents, contents.training_jobs[1])
        rates = {line.name: line.points[0][1] for line in found.traffic}
        assert rates == pytest.approx({"received from other nodes": 1e6, "read from storage": 5e7})

    def test_a_day_of_samples_is_drawn_with_few_points(self) -> None:
        points = [(float(second), 1.0) for second in range(86_400)]
        thin = curves.thin(points)
        assert len(thin) <= curves.MAX_POINTS
        assert {y for _, y in thin} == {1.0}


class TestCharts:
    """What is in the specifications."""

    def test_one_line_a_seed_with_the_target_and_where_it_was_reached(
        self, trained_folder: RunFolder
    ) -> None:
        rows = rows_of(block_of(trained_folder).quality)
        assert {row["seed"] for row in rows if "seed" in row} == {"seed 1", "seed 2"}
        assert {row["label"] for row in rows if "label" in row} == {"target 0.8"}
        reached = {row["seed"]: row["epoch"] for row in rows if "reached" in row}
        assert reached == {"seed 1": 3, "seed 2": 2}

    def test_quality_is_drawn_from_zero(self, handmade_run: HandmadeRun) -> None:
        chart = block_of(one_seed(handmade_run, 0.7, 0.75)).quality
        assert chart is not None
        low, high = chart["layer"][0]["encoding"]["y"]["scale"]["domain"]
        assert low == 0 and high > 0.8  # the target

    def test_the_budget_has_every_phase_and_adds_up_to_the_wall_time(
        self, handmade_run: HandmadeRun
    ) -> None:
        folder = one_seed(handmade_run, 0.4, 0.9)
        rows = rows_of(block_of(folder).budget)
        found = score(Contents(folder)).trainings[0]
        lengths = {row["phase"].split()[0]: row["end"] - row["start"] for row in rows}
        assert tuple(lengths) == PHASES
        assert sum(lengths.values()) == pytest.approx(found.wall_s)
        names = [row["phase"] for row in rows]
        assert "start-up 4 s (11.8 %)" in names  # 4 of 34 s
        assert "evaluation 4 s (11.8 %)" in names

    def test_kernels_are_bars_with_their_share(self, trained_folder: RunFolder) -> None:
        rows = rows_of(block_of(trained_folder).kernels)
        shares = {row["kind"]: row["label"] for row in rows}
        assert shares == {
            "convolution": "60.0 %",
            "normalisation": "25.0 %",
            "element-wise": "15.0 %",
        }

    def test_what_was_not_measured_is_a_reason_and_no_chart(
        self, handmade_run: HandmadeRun
    ) -> None:
        block = block_of(one_seed(handmade_run, 0.9, power=False))
        assert block.power is None
        assert "processors: no powercap <here>" in block.power_reasons

    def test_the_roofline_is_of_the_trained_model_with_the_point_it_achieved(
        self, trained_folder: RunFolder
    ) -> None:
        contents = Contents(trained_folder)
        scored = score(contents)
        (found,) = roofline_models(contents, scored)
        assert found.bound.model == WORKLOAD
        assert found.achieved is not None
        speeds = [training.speed.flops for training in scored.trainings if training.speed]
        assert found.achieved.flops == pytest.approx(sum(speeds) / 2 / 2)  # of one accelerator
        assert found.sentence is not None and "on average over 2 training runs" in found.sentence
        moved = sum(point.bytes_moved for point in found.bound.points)
        assert found.achieved.intensity == pytest.approx(found.bound.ops / moved)
        assert found.achieved.most == found.bound.attainable


class TestPage:
    """What a reader finds."""

    def test_the_headline_figures_and_all_of_the_score_are_there(
        self, trained_folder: RunFolder
    ) -> None:
        page = page_of(trained_folder)
        for text in (
            "2.06 MVFLOPS",
            "mean of 2 seeds, CV 1.6 %",
            "means of 2 of 2 seeds",
            "3.47 MVFLOPS",
            "3.51 as published",
            "n = 5, rules hpcai500/1",
            "time to quality",
            "3.85 kVFLOPS/W",
            "synthetic data: not comparable with real data",
            "seed 1 took 2 attempts: 500 samples were repeated",
            "1: the target was reached (1.802 = (0.9 / 0.8)^5 as published)",
            "coefficient of variation",
            "28.28 %",
            "samples evaluated",
        ):
            assert text in page, text
        assert "penalty" not in page.split("</head>")[-1]  # both seeds are above the target
        assert "target was not reached" not in page

    def test_the_header_has_a_date_to_read_and_the_checks_are_counted(
        self, trained_folder: RunFolder
    ) -> None:
        page = page_of(trained_folder)
        date = trained_folder.record.created_utc[:16].replace("T", " ")
        assert f"<span>{date} UTC</span>" in page
        assert re.search(r"Checks: \d+ pass, (\d+ (fails?|cannot tell), )*\d+ do not apply\.", page)

    def test_a_target_that_was_missed_and_power_without_a_sensor_are_said(
        self, handmade_run: HandmadeRun
    ) -> None:
        page = page_of(one_seed(handmade_run, 0.4, power=False))
        top = page.split('id="answer"')[1].split("<details")[0]
        assert "<b>0.4</b>" in top and "target 0.8 missed" in top and "not reached" in top
        assert "not measured" in top
        assert "no powercap &lt;here&gt;" in page
        assert "no powercap <here>" not in page

    def test_declared_operations_are_marked(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job(declared=declared(10, 40)))
        handmade_run.attempt(1, 0.0, *course(0.9))
        page = page_of(handmade_run.folder)
        assert "DECLARED, not counted: the user&#39;s &lt;script&gt;" in page

    def test_a_training_that_just_began_has_a_page(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job())
        page = page_of(handmade_run.folder)
        assert "has not started" in page
        for untrue in ("has not finished", "No loss was logged", "Time budget"):
            assert untrue not in page
        handmade_run.attempt(1, 0.0, *course(0.9)[:1])
        page = page_of(handmade_run.folder)
        assert "The model was not evaluated so far" in page
        assert "No loss was logged so far" in page and "training ended" not in page

    def test_the_same_folder_gives_the_same_page(self, trained_folder: RunFolder) -> None:
        assert page_of(trained_folder) == page_of(trained_folder)


class TestUnits:
    """What a workload with units of samples and a quality of the loss shows: a language model."""

    GOAL = Goal(
        quality="next-token probability",
        better="higher",
        target=0.125,
        exponent=5,
        of_loss="exp(-loss)",
    )
    DATA = DataFacts(
        path="/data",
        synthetic=True,
        fingerprint="0" * 64,
        train=1000,
        validation=200,
        facts={"floor": 1.5},
        unit=SampleUnit(name="tokens", count=64),
    )

    def run(self, run: HandmadeRun) -> RunFolder:
        run.plan(job(goal=self.GOAL, data=self.DATA))
        run.attempt(1, 1000.0, *course(0.1, 0.2))
        return run.folder

    def test_loss_is_drawn_over_tokens_with_target_and_floor(
        self, handmade_run: HandmadeRun
    ) -> None:
        block = block_of(self.run(handmade_run))
        rows = rows_of(block.loss)
        assert {row["label"] for row in rows if "label" in row} == {"target 2.079", "floor 1.5"}
        validation = [row for row in rows if row.get("of") == "validation"]
        assert [row["tokens"] for row in validation] == [64_000, 128_000]
        assert [row["loss"] for row in validation] == pytest.approx([math.log(10), math.log(5)])
        training = [row for row in rows if row.get("of") == "training"]
        assert training[0]["tokens"] == pytest.approx(0.2 * 64_000)
        assert {
            row["tokens"] for row in rows_of(block.quality) if "quality" in row and "seed" in row
        }
        assert (block.progress, block.has_floor) == ("tokens", True)

    def test_speed_is_in_tokens(self, handmade_run: HandmadeRun) -> None:
        folder = self.run(handmade_run)
        block = block_of(folder)
        assert [row["rate"] for row in rows_of(block.throughput)] == pytest.approx(
            [64 * 200 / 2.2] * len(rows_of(block.throughput))
        )
        speed = next(tile for tile in block.tiles if tile["name"] == "speed")
        assert speed["value"].endswith(" tokens/s")
        page = page_of(folder)
        assert "Loss over tokens" in page
        assert "Floor: the loss of the source that drew this very text" in page

    def test_a_workload_without_units_is_drawn_over_epochs(self, handmade_run: HandmadeRun) -> None:
        folder = one_seed(handmade_run, 0.7)
        assert block_of(folder).progress == "epoch"
        page = page_of(folder)
        assert "Quality over epochs" in page and "Loss over epochs" in page
        assert "Floor: " not in page
