"""The score of ensembles, recomputed by hand: scale, time to quality, and repeats."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.support.trained_runs import (
    COMPILE_S,
    START_S,
    HandmadeRun,
    Note,
    course,
    declared,
    started,
    trained_graph,
)
from tests.support.trained_runs import job as a_job
from tests.support.trained_text import NEXT_TOKEN, text
from vflops.cli.results.score import _result_texts
from vflops.cli.terminal.run_display import _print_results
from vflops.counting.conventions import convention
from vflops.counting.count import count
from vflops.publish.ranking.summary import results as ranking_results
from vflops.publish.report import report_page
from vflops.publish.report.ensemble_blocks import ensemble_blocks, ensemble_mean_blocks
from vflops.publish.report.job_table import job_table
from vflops.publish.report.results import results
from vflops.record.folder import RunFolder
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import Ensembled, EnsembleEvaluation, EnsembleSize
from vflops.record.readout.contents import Contents
from vflops.results import many_trainings
from vflops.results.check.ensemble_evaluations import ensemble_evaluation_faults
from vflops.results.check.folder_rules import check_score
from vflops.results.score import score_tables
from vflops.results.score.scale_score import models_at_once
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score

EVALUATED_S = [START_S + COMPILE_S + 13.5 * epoch - 0.5 for epoch in (1, 2, 3)]
"""When a model has done its evaluations: 10 steps of 1.1 s, 2 s of evaluation and 0.5 s between."""


def plan(run: HandmadeRun, models: int = 2, repeats: int = 1, ranks: int = 2, **facts: Any) -> None:
    records = [
        a_job(
            1 + repeat * models + model,
            repeat=repeat,
            ranks=ranks,
            bag={"model": model, "models": models, "bootstrap": "poisson", "seed": 1 + repeat},
            **facts,
        )
        for repeat in range(repeats)
        for model in range(models)
    ]
    run.plan(*records)


def train(run: HandmadeRun, job: int, began_s: float, *qualities: float, **device: Any) -> None:
    notes: list[Note] = course(*qualities)
    run.attempt(job, began_s, started(**device), *notes[1:])


def combine(
    run: HandmadeRun,
    *qualities: float,
    jobs: tuple[int, ...] = (1, 2),
    repeat: int = 0,
    planned: int = 2,
) -> Ensembled:
    """Write that the models were combined after each epoch."""
    ensemble = Ensembled(
        workload="image-classification",
        repeat=repeat,
        planned=planned,
        jobs=jobs,
        evaluated=200,
        sizes=(EnsembleSize(models=len(jobs), quality=qualities[-1]),),
        evaluations=tuple(
            EnsembleEvaluation(step=10 * epoch, epoch=epoch, quality=quality)
            for epoch, quality in enumerate(qualities, start=1)
        ),
        took_s=0.1,
    )
    with run.folder.start_attempt(job=0) as log:
        log.write("ensemble", **ensemble.model_dump(mode="json"))
        log.write("end")
    return ensemble


def fresh(run: HandmadeRun) -> Score:
    return score(Contents(RunFolder.open(run.folder.path)))


class TestScale:
    def test_sys_scale_and_apc_are_equations_4_and_5(self, handmade_run: HandmadeRun) -> None:
        plan(handmade_run)
        for job in (1, 2):
            train(handmade_run, job, 1000.0, 0.4, 0.7, 0.9)
        combine(handmade_run, 0.5, 0.75, 0.92)
        scored = fresh(handmade_run)
        scale = scored.ensembles[0].scale
        assert scale is not None
        ops = count(trained_graph(), convention("hpcai500")).total.total // 4
        assert (scale.models, scale.ranks, scale.sys_scale, scale.slots) == (
            2,
            2,
            4,
            "accelerators",
        )
        assert scale.apc == 2 * 100 * ops
        assert [training.scale for training in scored.trainings] == [None, None]
        rows = dict(score_tables.ensemble_rows(scored.ensembles[0]))
        assert rows["Sys_scale"] == "4 accelerators = 2 models × 2 ranks"
        assert rows["APC"].endswith("FLOP for one update of each of 2 models")

    def test_a_single_model_has_the_apc_of_the_papers_example(
        self, handmade_run: HandmadeRun
    ) -> None:
        """V3.0, section 2: 23 GFLOPs per image and a batch of 512 are 11,776 GFLOPs."""
        settings = {"target": 0.8, "train": {"batch": 512}}
        record = a_job(ranks=1, settings=settings, declared=declared(8 * 10**9, 23 * 10**9))
        handmade_run.plan(record)
        train(handmade_run, 1, 0.0, 0.9, batch=512, ranks=1, device="cpu")
        (training,) = fresh(handmade_run).trainings
        assert training.scale is not None
        assert training.scale.apc == 11_776 * 10**9
        assert (training.scale.sys_scale, training.scale.slots) == (1, "CPU shares")
        rows = dict(score_tables.training_rows(training))
        assert rows["Sys_scale"] == "1 CPU share = 1 model × 1 rank"
        assert rows["APC"] == "11.8 TFLOP for one update"

    def test_models_in_waves_count_as_far_as_they_trained_at_once(
        self, handmade_run: HandmadeRun
    ) -> None:
        plan(handmade_run, models=3)
        for job, began_s in ((1, 0.0), (2, 5.0), (3, 500.0)):
            train(handmade_run, job, 1000.0 + began_s, 0.4, 0.7, 0.9)
        combine(handmade_run, 0.5, 0.75, 0.92, jobs=(1, 2, 3), planned=3)
        (found,) = fresh(handmade_run).ensembles
        assert found.scale is not None and found.waves
        assert found.flops_epoch is None  # M models did not train in the time of one epoch
        assert (found.scale.models, found.scale.sys_scale) == (2, 4)

    @pytest.mark.parametrize(
        ("spans_s", "expected"),
        [
            ([(0.0, 9.0), (1.0, 9.0), (2.0, 3.0)], 3),
            ([(0.0, 1.0), (1.0, 2.0)], 1),  # one begins when the other has ended
            ([(0.0, 3.0), (1.0, 2.0), (2.5, 4.0)], 2),
            ([(5.0, 5.0)], 1),
        ],
    )
    def test_how_many_trained_at_once(
        self, spans_s: list[tuple[float, float]], expected: int
    ) -> None:
        assert models_at_once(spans_s) == expected


class TestBesideItsModels:
    @pytest.mark.parametrize(
        ("achieved", "beats", "verdict"),
        [
            (0.51, "best", "the ensemble is better than each"),
            (0.5, "mean", "the ensemble is better than their mean, but not than the best"),
            (0.375, "none", "the ensemble is not better than their mean"),
        ],
    )
    def test_loss_and_perplexity_stand_beside_those_of_its_models(
        self, achieved: float, beats: str, verdict: str, handmade_run: HandmadeRun
    ) -> None:
        plan(handmade_run, goal=NEXT_TOKEN, data=text(**{"bytes per token": 2.0}))
        train(handmade_run, 1, 1000.0, 0.5)
        train(handmade_run, 2, 1000.0, 0.25)
        combine(handmade_run, achieved)
        scored = fresh(handmade_run)
        (found,) = scored.ensembles
        assert (found.mean_quality, found.best_quality, found.beats) == (0.375, 0.5, beats)
        assert found.loss is not None and found.loss.value == -math.log(achieved)
        assert found.loss.bits_per_byte == pytest.approx(-math.log2(achieved) / 2)
        assert found.mean_loss == pytest.approx(math.log(2) * 1.5)
        rows = dict(score_tables.ensemble_rows(found))
        assert f"single models 0.375 on average, 0.5 at best: {verdict}" in rows["quality"]
        assert rows["loss"].endswith(
            "single models 1.04 on average, 0.6931 at best, perplexity 2 at best, "
            "0.5 bits per byte at best"
        )
        assert verdict in score_tables.ensemble_line(scored, found)
        (shown,) = ensemble_blocks(scored)
        notes = {tile["name"]: tile["note"] for tile in shown.tiles}
        assert f"perplexity {1 / achieved:.4g}" in notes["next-token probability"]
        assert ("the ensemble is better" in notes["single models"]) == (beats == "best")

    def test_a_lower_error_is_better(self, handmade_run: HandmadeRun) -> None:
        goal = Goal(quality="error", better="lower", target=0.6, exponent=1)
        plan(handmade_run, goal=goal)
        train(handmade_run, 1, 1000.0, 0.5)
        train(handmade_run, 2, 1000.0, 0.25)
        combine(handmade_run, 0.2)
        (found,) = fresh(handmade_run).ensembles
        assert (found.best_quality, found.beats, found.loss) == (0.25, "best", None)
        assert "loss" not in dict(score_tables.ensemble_rows(found))


class TestTimeToQuality:
    def test_it_is_when_the_last_model_had_done_the_evaluation(
        self, handmade_run: HandmadeRun
    ) -> None:
        """Single models reach the target later, or not at all."""
        plan(handmade_run)
        train(handmade_run, 1, 1000.0, 0.4, 0.7, 0.9)
        train(handmade_run, 2, 1006.0, 0.3, 0.6, 0.7)
        combine(handmade_run, 0.5, 0.85, 0.92)
        scored = fresh(handmade_run)
        (found,) = scored.ensembles
        expected = [6.0 + time_s for time_s in EVALUATED_S]
        assert [moment.time_s for moment in found.moments] == pytest.approx(expected, abs=1e-3)
        assert found.time_to_quality_s == pytest.approx(expected[1], abs=1e-3)
        assert found.epochs_to_quality == 2
        text = dict(score_tables.ensemble_rows(found))["time to quality"]
        assert text.endswith("s, epoch 2; combined at 3 evaluations")
        line = score_tables.ensemble_line(scored, found)
        assert line.startswith("image-classification, 2 models together: ")  # not repeated
        assert line.endswith(", target reached after 39.5 s")

    def test_waiting_for_another_model_counts_and_is_said(self, handmade_run: HandmadeRun) -> None:
        plan(handmade_run)
        train(handmade_run, 1, 1000.0, 0.4, 0.7, 0.9)
        train(handmade_run, 2, 1100.0, 0.4, 0.7, 0.9)
        combine(handmade_run, 0.5, 0.75, 0.92)
        (found,) = fresh(handmade_run).ensembles
        assert found.waves
        assert found.time_to_quality_s == pytest.approx(100.0 + EVALUATED_S[2], abs=1e-3)
        text = dict(score_tables.ensemble_rows(found))["time to quality"]
        assert "including the time that models waited for others" in text

    def test_a_model_that_ended_earlier_holds_nothing_up(self, handmade_run: HandmadeRun) -> None:
        plan(handmade_run)
        train(handmade_run, 1, 1000.0, 0.4, 0.7, 0.9)
        train(handmade_run, 2, 1000.0, 0.4)
        combine(handmade_run, 0.5, 0.75, 0.92)
        (found,) = fresh(handmade_run).ensembles
        times = [moment.time_s for moment in found.moments]
        assert times == pytest.approx(EVALUATED_S, abs=1e-3)

    def test_a_target_that_was_missed_and_a_run_that_cannot_tell(
        self, handmade_run: HandmadeRun
    ) -> None:
        plan(handmade_run)
        for job in (1, 2):
            train(handmade_run, job, 1000.0, 0.4, 0.5, 0.6)
        missed = combine(handmade_run, 0.5, 0.75, 0.79)
        (found,) = fresh(handmade_run).ensembles
        assert (found.time_to_quality_s, found.epochs_to_quality) == (None, None)
        assert dict(score_tables.ensemble_rows(found))["time to quality"] == (
            "not reached; combined at 3 evaluations"
        )
        with handmade_run.folder.start_attempt(job=0) as log:
            data = missed.model_copy(update={"evaluations": ()}).model_dump(mode="json")
            log.write("ensemble", **data)  # as version 0.2 wrote it
            log.write("end")
        (found,) = fresh(handmade_run).ensembles
        assert found.moments == ()
        text = dict(score_tables.ensemble_rows(found))["time to quality"]
        assert text == "not known: combined only after training, at no evaluation"

    def test_report_and_ranking_show_it(self, handmade_run: HandmadeRun) -> None:
        plan(handmade_run)
        for job in (1, 2):
            train(handmade_run, job, 1000.0, 0.4, 0.7, 0.9)
        combine(handmade_run, 0.5, 0.85, 0.92)
        scored = fresh(handmade_run)
        (row,) = results(scored)
        assert row.time.figure == "33.5 s"
        assert row.time.notes[0].startswith("epoch 2; trained for")
        (block,) = ensemble_blocks(scored)
        tiles = {tile["name"]: tile["value"] for tile in block.tiles}
        assert tiles["time to quality"] == "33.5 s"
        assert block.over_time is not None
        contents = Contents(RunFolder.open(handmade_run.folder.path))
        (result,) = ranking_results(contents, scored)
        assert result.to_target_s == pytest.approx(EVALUATED_S[1], abs=1e-3)

    @pytest.mark.parametrize(
        ("change", "fault"),
        [
            ({}, None),
            ({"evaluations": ()}, None),
            ({1: {"step": 15}}, "combined at step 15, where job 1 has no evaluation"),
            ({1: {"epoch": 1.5}}, "combined at step 20, which does not end epoch 1.5"),
            ({1: {"step": 10, "epoch": 1}}, "combined at step 10 after step 10"),
            ({2: {"quality": 0.99}}, "of quality 0.99 at its last evaluation, but of 0.92"),
            ({"evaluations": 2}, "last combined at step 20, but training ended at step 30"),
        ],
    )
    def test_evaluations_that_the_models_did_not_make_are_found(
        self, handmade_run: HandmadeRun, change: dict[Any, Any], fault: str | None
    ) -> None:
        plan(handmade_run)
        for job in (1, 2):
            train(handmade_run, job, 1000.0, 0.4, 0.7, 0.9)
        ensemble = combine(handmade_run, 0.5, 0.85, 0.92)
        points = [
            point.model_copy(update=change.get(number, {}))
            for number, point in enumerate(ensemble.evaluations)
        ]
        cut = change.get("evaluations", len(points))
        changed = tuple(points[: cut if isinstance(cut, int) else 0])
        jobs = Contents(RunFolder.open(handmade_run.folder.path)).training_jobs
        forged = ensemble.model_copy(update={"evaluations": changed})
        found = next(ensemble_evaluation_faults(forged, jobs), None)
        assert found == fault if fault is None else fault in str(found)


class TestRepeats:
    @pytest.fixture
    def repeated(self, handmade_run: HandmadeRun) -> HandmadeRun:
        """Two ensembles of two models: 0.9 after epoch 3, and 0.84 with the target after 2."""
        plan(handmade_run, repeats=2)
        for job in (1, 2, 3, 4):
            began_s = 1000.0 if job < 3 else 2000.0
            train(handmade_run, job, began_s, 0.4, 0.7, 0.8)
        combine(handmade_run, 0.5, 0.7, 0.9)
        combine(handmade_run, 0.5, 0.82, 0.84, jobs=(3, 4), repeat=1)
        return handmade_run

    def test_they_have_the_mean_and_the_coefficient_of_variation(
        self, repeated: HandmadeRun
    ) -> None:
        scored = fresh(repeated)
        (found,) = scored.repeats
        assert (found.models, found.planned, found.complete, found.reached) == (2, 2, 2, 2)
        # Of two values a and b: |a − b| / √2 over their mean.
        assert found.quality is not None and found.epochs_to_quality is not None
        assert found.quality.mean == pytest.approx(0.87)
        assert found.quality.variation == pytest.approx(0.06 / 2**0.5 / 0.87)
        assert found.epochs_to_quality.mean == 2.5
        assert found.epochs_to_quality.variation == pytest.approx(1 / 2**0.5 / 2.5)
        valid = [ensemble.vflops for ensemble in scored.ensembles if ensemble.vflops]
        assert found.vflops is not None
        assert found.vflops.mean == pytest.approx(sum(valid) / 2)
        assert found.time_to_quality_s is not None
        expected_s = (EVALUATED_S[1] + EVALUATED_S[2]) / 2
        assert found.time_to_quality_s.mean == pytest.approx(expected_s, abs=1e-3)

    def test_texts_and_report_show_them(
        self, repeated: HandmadeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scored = fresh(repeated)
        (found,) = scored.repeats
        title = "image-classification, 2 models, mean of 2 ensembles"
        assert score_tables.repeat_title(found) == title
        assert "2 of 2 ensembles reached the target" in score_tables.repeat_line(found)
        (row,) = results(scored)
        assert (row.name, row.quality.figure) == (title, "0.87")
        assert row.quality.notes[1] == "target 0.8, reached by 2 of 2"
        assert row.time.notes[0].startswith("mean; 33.5 s to ")
        (mean,) = ensemble_mean_blocks(scored)
        assert (mean.title, mean.rows) == (title, score_tables.repeat_rows(found))
        monkeypatch.setattr(report_page, "chart_library", str)  # seconds, and nothing draws here
        report_page.write_report(Contents(RunFolder.open(repeated.folder.path)))
        page = repeated.folder.report_file.read_text(encoding="utf-8")
        assert page.count(f"<h2>Ensembles: {title}</h2>") == 1

    def test_texts_and_report_tell_them_apart(
        self, repeated: HandmadeRun, capsys: pytest.CaptureFixture[str]
    ) -> None:
        scored = fresh(repeated)
        names = [f"image-classification, ensemble {number} of 2" for number in (1, 2)]
        found = [score_tables.ensemble_line(scored, ensemble) for ensemble in scored.ensembles]
        assert [line.partition(" models together:")[0] for line in found] == [
            f"{name}, 2" for name in names
        ]
        assert [block.title for block in ensemble_blocks(scored)] == [
            f"{name}, 2 models" for name in names
        ]
        trainings = [score_tables.training_name(scored, training) for training in scored.trainings]
        assert trainings == [f"{name}, model {model}" for name in names for model in (1, 2)]
        title = "image-classification, 4 models of 2 ensembles"
        assert many_trainings.title(scored.trainings) == title
        folder = RunFolder.open(repeated.folder.path)
        jobs = [row[2] for row in job_table(Contents(folder), scored).rows]
        assert jobs == [f"ensemble {n} of 2, model {model}" for n in (1, 2) for model in (1, 2)]
        headings = [line.splitlines()[0] for line in _result_texts(scored)]
        own = [f"{name}, 2 models together" for name in names]
        assert [line for line in headings if line.endswith("together")] == own
        scored.write(folder.score_file)
        _print_results(folder)
        shown = capsys.readouterr().out
        assert "image-classification: " in shown and "mean of 2 ensembles" in shown
        assert all(f"{name}, 2 models together: " in " ".join(shown.split()) for name in names)

    def test_an_ensemble_without_all_its_models_is_not_a_repeat(
        self, handmade_run: HandmadeRun
    ) -> None:
        plan(handmade_run, repeats=2)
        for job in (1, 2, 3):
            train(handmade_run, job, 1000.0, 0.4, 0.7, 0.8)
        combine(handmade_run, 0.5, 0.7, 0.9)
        combine(handmade_run, 0.5, 0.7, 0.8, jobs=(3,), repeat=1)
        (found,) = fresh(handmade_run).repeats
        assert (found.planned, found.complete, found.quality) == (2, 1, None)

    def test_one_ensemble_is_no_repeat(self, handmade_run: HandmadeRun) -> None:
        plan(handmade_run)
        for job in (1, 2):
            train(handmade_run, job, 1000.0, 0.4, 0.7, 0.8)
        combine(handmade_run, 0.5, 0.7, 0.9)
        assert fresh(handmade_run).repeats == ()

    def test_a_score_of_version_0_2_had_no_means_over_ensembles(
        self, repeated: HandmadeRun
    ) -> None:
        path = repeated.folder.path / "run.json"
        run = json.loads(path.read_text())
        path.write_text(json.dumps({**run, "versions": {"vflops": "0.2.0"}}))
        recorded = json.loads(fresh(repeated).to_json())
        recorded["repeats"] = []
        repeated.folder.score_file.write_text(json.dumps(recorded))
        contents = Contents(RunFolder.open(repeated.folder.path))
        assert check_score(contents).verdict == "pass"
        recorded["ensembles"][0]["vflops"] *= 2
        repeated.folder.score_file.write_text(json.dumps(recorded))
        assert check_score(Contents(contents.folder)).verdict == "fail"
