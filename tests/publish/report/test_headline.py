"""What the page says in words: the score first, the order of the rest, how to do it again."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from tests.support.trained_runs import HandmadeRun, course, job, write_telemetry
from vflops.cli import options
from vflops.config.profiles import for_suite
from vflops.machine.system.cpu_share import available_cpus
from vflops.publish.report.headline import job_rows, results
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder, RunRecord
from vflops.record.formats.job import BagRecord
from vflops.record.readout.contents import Contents
from vflops.results.command_line import command
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


class TestResults:
    """The figure and what it is made of."""

    def test_a_training_says_what_it_reached_and_what_that_is_worth(
        self, handmade_run: HandmadeRun
    ) -> None:
        handmade_run.plan(job())
        handmade_run.attempt(1, 0.0, *course(0.4, 0.9))
        _, found = scored(handmade_run)
        (result,) = results(found)
        speed = found.trainings[0].speed
        assert result.figure == f"{speed.vflops / 1e6:.3g} MVFLOPS"
        worth = f"so quality factor 1.8 × {speed.flops / 1e6:.2f} MFLOPS"
        assert (
            result.sentence
            == f"Reached 0.9 top-1 accuracy for a target of 0.8 after 33.5 s, {worth}"
        )
        assert result.note.startswith("1.802 = (0.9 / 0.8)^5, a reward")

    def test_of_repeats_the_mean_is_the_figure(self, trained_folder: RunFolder) -> None:
        found = score(Contents(trained_folder))
        (result,) = results(found)
        seeds = [(e.speed.vflops or 0.0) / 1e6 for e in found.trainings if e.speed]
        assert result.figure == f"{sum(seeds) / 2:.3g} MVFLOPS"
        speeds = [(e.speed.flops or 0.0) / 1e6 for e in found.trainings if e.speed]
        assert result.sentence == (
            "Mean of 2 seeds, CV 1.6 %: 0.88 to 0.9 top-1 accuracy over the target 0.8, "
            f"to the power of 5, × {sum(speeds) / 2:.3g} MFLOPS; 2 of 2 reached it"
            " after 46.2 s on average"
        )
        assert result.note == f"seed 1 {seeds[0]:.3g} MVFLOPS, seed 2 {seeds[1]:.3g} MVFLOPS"

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
        assert result.sentence.endswith("models: 1 finished, 1 unfinished, 1 not started")

    def test_one_that_has_not_ended_says_how_far_it_is(self, handmade_run: HandmadeRun) -> None:
        handmade_run.plan(job(), job(2))
        handmade_run.attempt(1, 0.0, *course(0.9)[:-2])
        contents, found = scored(handmade_run)
        (result, other) = results(found)
        assert other.sentence == "Has not started"
        assert (result.figure, result.name) == ("—", "image-classification, seed 1")
        assert result.sentence == "Has not finished: epoch 1.00 after 20 s"
        states = [(row[0], row[2], row[5]) for row in job_rows(contents, found)]
        assert states == [("1", "seed 1", "unfinished"), ("2", "seed 2", "not started")]

    def test_the_page_is_in_the_order_of_questions(self, trained_folder: RunFolder) -> None:
        write_report(Contents(trained_folder))
        page = trained_folder.report_file.read_text()
        marks = ["score", "training-0", "training-0-quality", "training-0-budget", "roofline"]
        marks += ["telemetry", "training-0-power", "jobs", "system", "rules", "reproduce"]
        places = [page.index(f'id="{mark}"') for mark in marks]
        assert places == sorted(places)
        for link in re.findall(r'<a href="#([^"]+)"', page):
            assert f'id="{link}"' in page, link
        assert "Rule set practice/" in page
        assert f"vflops reproduce {trained_folder.record.id}" in page


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
            (["data='/a \"b\"/<c>'"], None, """--set 'data="/a \\"b\\"/<c>"'"""),
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


def again(words: str) -> Any:
    """The settings that the command line makes of the words."""
    given = shlex.split(words)
    pairs = list(zip(given[3::2], given[4::2], strict=True))
    seeds = [int(value) for flag, value in pairs if flag == "--seed"]
    assignments = [value for flag, value in pairs if flag == "--set"]
    profile = next(value for flag, value in pairs if flag == "--profile")
    seed = seeds[0] if seeds else None
    return options.settings(profile, seed, None, assignments, workloads=given[2])
