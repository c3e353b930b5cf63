"""The results of a run in words: their figures and order, and the command that repeats them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.search_runs import HandmadeSearch, one_worker
from tests.support.trained_runs import HandmadeRun, course, job, write_telemetry
from vflops.cli import options
from vflops.config.profiles import for_suite
from vflops.machine.system.cpu_share import available_cpus
from vflops.publish.report.job_table import job_table
from vflops.publish.report.results import Order, _mean_share, results
from vflops.record.folder import RunFolder, RunRecord
from vflops.record.formats.job import BagRecord
from vflops.record.readout.contents import Contents
from vflops.results.command_line import command
from vflops.results.score.score_file import MfuScore, SearchScore, TrainingScore
from vflops.results.score.scoring import score


def scored(run: HandmadeRun) -> tuple[Contents, Any]:
    contents = Contents(RunFolder.open(run.folder.path))
    return contents, score(contents)


def record(workload: str, *assignments: str, seed: int | None = None) -> RunRecord:
    """The record of ``vflops run WORKLOAD --profile tiny`` with these settings."""
    settings = options.settings(
        "tiny", seed, None, list(assignments), workloads=None if workload == "micro" else workload
    )
    return RunRecord(
        id="one", workload=workload, created_utc="", settings=settings, versions={"vflops": "1"}
    )


@pytest.fixture
def search_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchScore:
    """A search of seconds, which is not a result by AIPerf's rules."""
    made = HandmadeSearch(tmp_path / "searches", monkeypatch)
    made.worker(0, one_worker(made))
    (found,) = score(Contents(made.folder)).searches
    return found


def changed(training: TrainingScore, **facts: Any) -> TrainingScore:
    return training.model_copy(update=facts)


class TestResults:
    """The figures of a result, and the order of results."""

    def test_a_closed_task_has_vflops_with_their_factors_and_as_published(
        self, handmade_run: HandmadeRun
    ) -> None:
        handmade_run.plan(job())
        handmade_run.attempt(1, 0.0, *course(0.4, 0.9))
        _, found = scored(handmade_run)
        (result,) = results(found)
        speed = found.trainings[0].speed
        flops = f"{speed.flops / 1e6:.2f}"
        assert result.speed.figure == f"{flops} MVFLOPS"
        assert result.speed.notes[:2] == (
            f"{flops} MFLOPS × quality factor 1",
            f"{speed.vflops / 1e6:.2f} as published",
        )
        assert result.state.startswith(f"closed task {found.tasks[0].digest}")
        assert (result.quality.figure, result.quality.tone) == ("0.9", "good")
        assert result.quality.notes == ("top-1 accuracy", "target 0.8 reached")
        assert result.time.figure == "33.5 s"

    def test_an_open_task_has_no_vflops_and_says_what_differs(
        self, handmade_run: HandmadeRun
    ) -> None:
        handmade_run.plan(job(target=0.75))
        handmade_run.attempt(1, 0.0, *course(0.9))
        _, found = scored(handmade_run)
        (result,) = results(found)
        assert found.tasks[0].kind == "open" and result.order == Order.OPEN
        assert result.speed.figure.endswith(" MFLOPS")
        assert "no VFLOPS: the task is open" in result.speed.notes
        digest = found.tasks[0].digest
        assert result.state.startswith(f"open task {digest}: target 0.75 instead of ")

    def test_of_repeats_the_mean_is_the_figure(self, trained_folder: RunFolder) -> None:
        found = score(Contents(trained_folder))
        (result,) = results(found)
        seeds = [e.speed.flops / 1e6 for e in found.trainings if e.speed]
        assert result.speed.figure == f"{sum(seeds) / 2:.3g} MVFLOPS"
        variation = abs(seeds[0] - seeds[1]) / sum(seeds) * 2**0.5
        half_width = 12.7062 * abs(seeds[0] - seeds[1]) / 2  # t of one degree of freedom
        published = [(e.speed.vflops or 0.0) / 1e6 for e in found.trainings if e.speed]
        assert result.speed.notes[:3] == (
            f"± {half_width:.2f} MVFLOPS at 95 % confidence",
            f"coefficient of variation {100 * variation:.1f} %",
            f"{sum(seeds) / 2:.3g} MFLOPS; {sum(published) / 2:.3g} as published",
        )
        assert result.name == "image-classification, mean of 2 seeds"
        assert result.quality.notes[1] == "target 0.8, reached by 2 of 2"
        assert result.energy.figure == "23.8 kJ" and "500 W" in result.energy.notes[0]
        times_s = [e.quality.time_to_quality_s or 0.0 for e in found.trainings]
        assert result.time.figure == f"{sum(times_s) / 2:.3g} s"

    def test_a_target_that_was_lost_again_is_not_reached(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job())
        handmade_run.attempt(1, 0.0, *course(0.9, 0.7))
        (result,) = results(scored(handmade_run)[1])
        assert result.order == Order.MISSED and result.quality.tone == "bad"
        assert result.quality.notes[1] == "target 0.8 reached before the end, missed at the end"

    def test_results_are_in_the_order_of_their_validity(
        self, trained_folder: RunFolder, search_score: SearchScore
    ) -> None:
        found = score(Contents(trained_folder))
        first = found.trainings[0].model_copy(update={"task": "closed"})
        missed = first.quality.model_copy(update={"penalty": 0.5, "time_to_quality_s": None})
        trainings = (
            changed(first, workload="not-started", job=6, attempts=0, complete=False),
            changed(first, workload="unfinished", job=5, complete=False),
            changed(first, workload="broken", job=4),
            changed(first, workload="open", job=3, task="open"),
            changed(first, workload="missed", job=2, quality=missed),
            changed(first, workload="good", job=1),
        )
        update = {"trainings": trainings, "repeats": (), "searches": (search_score,), "tasks": ()}
        rows = results(found.model_copy(update=update), failed_jobs={4})
        names = [row.workload for row in rows]
        assert not search_score.aiperf.valid
        assert names == ["good", "missed", "open", "broken", "automl", "unfinished", "not-started"]

    def test_models_of_an_ensemble_that_still_train_are_there(
        self, handmade_run: HandmadeRun
    ) -> None:
        bags = [BagRecord(model=number, models=3, bootstrap="none", seed=1) for number in range(3)]
        handmade_run.plan(*(job(1 + n, repeat=0, bag=bag) for n, bag in enumerate(bags)))
        handmade_run.attempt(1, 0.0, *course(0.9))
        handmade_run.attempt(2, 0.0, *course(0.9)[:-2])
        _, found = scored(handmade_run)
        (result,) = results(found)
        assert result.name == "image-classification, 3 models"
        assert result.state.endswith("models: 1 finished, 1 unfinished, 1 not started")

    def test_one_that_has_not_ended_says_how_far_it_is(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job(), job(2))
        handmade_run.attempt(1, 0.0, *course(0.9)[:-2])
        contents, found = scored(handmade_run)
        (result, other) = results(found)
        assert other.state == "has not started"
        assert (result.speed.figure, result.name) == ("—", "image-classification, seed 1")
        assert result.state == "has not finished: epoch 1.00 after 20 s"
        states = [(row[0], row[2], row[5]) for row in job_table(contents, found).rows]
        assert states == [("1", "seed 1", "unfinished"), ("2", "seed 2", "not started")]


class TestPower:
    """A sensor that says nothing."""

    def test_power_that_reads_0_all_the_time_is_not_measured(
        self, handmade_run: HandmadeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.support.trained_runs.GPU_POWER_W", (0.0, 0.0))
        handmade_run.plan(job())
        write_telemetry(handmade_run.attempt(1, 1000.0, *course(0.9)), 1000.0, 40)
        _, found = scored(handmade_run)
        training = found.trainings[0]
        assert (training.power.power_w, training.vflops_per_watt) == (None, None)
        assert "gpu0.power, gpu1.power read 0 all the time" in training.power.reason


class TestCommand:
    """The words that give the run again."""

    @pytest.mark.parametrize(
        ("assignments", "seed", "words"),
        [
            ([], None, ""),
            (["train.epochs=7", "train.batch=64"], 5, "--seed 5 --set X.batch=64 --set X.epochs=7"),
            (["micro.budget_s=3"], None, "--set micro.budget_s=3.0"),
            (["train.device=cpu", "count.models=resnet50"], None, None),
            (["models=4", "bagging.models=4", "train.ranks=2"], None, "--models 4 --ranks 2"),
            (["models=4", "bagging.models=2"], None, "--set models=4 --set bagging.models=2"),
            (["bagging.models=2", "repeat=3"], None, "--set bagging.models=2 --repeat 3"),
            (["data='/a \"b\"/<c>'"], None, """--data '/a "b"/<c>'"""),
        ],
    )
    def test_a_workload_has_what_differs_from_its_profile(
        self, assignments: list[str], seed: int | None, words: str | None
    ) -> None:
        asked = record("image-classification", *assignments, seed=seed)
        found = command(asked)
        assert found is not None
        start = "vflops run image-classification --profile tiny"
        if words is not None:
            flags = shlex.split(f"{start} {words.replace('X.', 'train.')}")
            assert sorted(shlex.split(found)) == sorted(flags)
        assert again(found) == asked.settings

    def test_the_suite_names_the_workload_of_each_setting(self) -> None:
        asked = record("suite", "image-classification.train.epochs=2")
        assert asked.settings == for_suite(asked.settings, available_cpus())
        found = command(asked)
        assert found == "vflops run --profile tiny --set image-classification.train.epochs=2"

    def test_ceilings_alone_are_the_command_for_them(self) -> None:
        sized = ("count.models=[]", "micro.benchmarks=gemm,memory", "micro.budget_s=2")
        found = command(record("micro", *sized, seed=3))
        assert found == "vflops micro gemm memory --profile tiny --budget 2 --seed 3"
        assert command(record("micro", "count.models=[]", "micro.ranks=4")) is None

    def test_what_no_words_can_say_is_not_said_wrongly(self) -> None:
        asked = record("image-classification")
        section = asked.settings.workloads["image-classification"]
        odd = {"image-classification": {**section, "train": {**section["train"], "seeds": 1}}}
        settings = asked.settings.model_copy(update={"workloads": odd})
        assert command(asked.model_copy(update={"settings": settings})) is None


def test_the_mean_share_of_models_belongs_to_their_mean_speed() -> None:
    def training(share: float) -> Any:
        mfu = MfuScore(
            value=share, flops=1e9 * share, ceiling_flops=1e9, ceiling="gemm", reason=None
        )
        return SimpleNamespace(mfu=mfu)

    assert _mean_share([training(0.1), training(0.3)]) == (
        "MFU 20.0 %: 200 MFLOPS executed, of 1.00 GFLOPS"
    )


def again(words: str) -> Any:
    """The settings that the command line makes of the words."""
    given = shlex.split(words)
    pairs = list(zip(given[3::2], given[4::2], strict=True))
    seeds = [int(value) for flag, value in pairs if flag == "--seed"]
    assignments = [value for flag, value in pairs if flag == "--set"]
    flags = {"--repeat": ["repeat"], "--models": ["models", "bagging.models"]}
    flags |= {"--ranks": ["train.ranks"], "--workers": ["search.workers"]}
    assignments += [f"{key}={value}" for flag, value in pairs for key in flags.get(flag, ())]
    assignments += [f"data={json.dumps(value)}" for flag, value in pairs if flag == "--data"]
    profile = next(value for flag, value in pairs if flag == "--profile")
    seed = seeds[0] if seeds else None
    return options.settings(profile, seed, None, assignments, workloads=given[2])


def test_the_command_of_a_run_is_the_same_when_its_settings_are_read_back(tmp_path: Path) -> None:
    made = record("image-classification", "train.epochs=2", "synthetic.train=256", "train.batch=32")
    made.write(tmp_path / "run.json")
    assert command(RunRecord.read(tmp_path / "run.json")) == command(made)
