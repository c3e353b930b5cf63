"""Closed tasks are those of the profiles; every other task is open and says how it differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.trained_runs import HandmadeRun, course
from tests.support.trained_runs import job as job_record
from vflops.config.flatten import flatten
from vflops.config.profiles import PUBLISHED_PROFILES, for_suite
from vflops.record.formats.job import BagRecord, DataFacts, Goal, JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.task.closed_tasks import closed_tasks, job_task, tasks
from vflops.results.task.definition import LEFT_TO_THE_PAPERS, NOT_IN_THE_TASK
from vflops.results.task.drawn_data import CONTENTS, FINGERPRINTS, profile_fingerprint
from vflops.results.task.task import Task
from vflops.workloads.contract import run_settings
from vflops.workloads.contract.registry import suite, workload, workloads

DIGESTS = {
    ("image-classification", "tiny"): "4a14f633f066",
    ("image-classification", "laptop"): "58290b2ffcef",
    ("image-classification", "gpu"): "6997feb3b8f8",
    ("image-classification", "reference"): "a542d31578b4",
    ("automl", "tiny"): "76237d2aabca",
    ("automl", "laptop"): "61fd96355cc4",
    ("automl", "gpu"): "d92120962d4a",
    ("automl", "laptop, in the suite"): "4f39eb11251a",
    ("automl", "gpu, in the suite"): "c87c73281905",
    ("automl", "reference"): "588a305fc123",
    ("automl", "aiperf"): "13b2efcd5dda",
    ("extreme-weather", "tiny"): "395aa5d6f051",
    ("extreme-weather", "laptop"): "b6d3c04990ea",
    ("extreme-weather", "gpu"): "5d6632ad23df",
    ("extreme-weather", "reference"): "af1e2a5dc76f",
    ("language-model", "tiny"): "3a1317945295",
    ("language-model", "laptop"): "1e5d7c7ac190",
    ("language-model", "gpu"): "2f2a7ac2565f",
    ("language-model", "reference"): "9dde4355ff34",
}
"""A change of a digest ends the comparability with earlier results: CHANGELOG.md must say so."""

IMAGENET = DataFacts(
    path="/data",
    synthetic=False,
    fingerprint="c" * 64,
    train=1_281_167,
    validation=50_000,
    facts={"classes": 1000},
)
CLIMATE = DataFacts(
    path="/data",
    synthetic=False,
    fingerprint="d" * 64,
    train=1460 * 24,
    validation=1460,
    test=1460,
    facts={
        "height": 768,
        "width": 1152,
        "split": "reference",
        "train years": "1979–2002",
        "validation years": "2003",
        "test years": "2004",
    },
)
FINEWEB = DataFacts(
    path="/data",
    synthetic=False,
    fingerprint="e" * 64,
    train=103 * 98_500_000 // 1024,
    validation=98_500_000 // 1024,
    facts={"vocabulary": 50_257},
)
PUBLISHED = {
    "image-classification": IMAGENET,
    "automl": IMAGENET,
    "extreme-weather": CLIMATE,
    "language-model": FINEWEB,
}
SYNTHETIC = DataFacts(path="", synthetic=True, fingerprint="a" * 64, train=64, validation=16)


def drawn(name: str, profile: str) -> DataFacts:
    """The synthetic data of a profile."""
    known = FINGERPRINTS.get(name, {}).get(profile, SYNTHETIC.fingerprint)
    return SYNTHETIC.model_copy(update={"fingerprint": known})


def job(name: str, settings: dict[str, Any], data: DataFacts, **changes: Any) -> JobRecord:
    spec = workload(name)
    target = settings["target"] or settings["synthetic"]["target"]
    quality = spec.quality
    record = JobRecord(
        job=1,
        workload=name,
        repeat=0,
        seed=1,
        ranks=1,
        goal=Goal(
            quality=quality.name, better=quality.better, exponent=quality.exponent, target=target
        ),
        settings=settings,
        data=data,
    )
    return record.model_copy(update=changes)


def task(
    name: str,
    profile: str,
    *assignments: str,
    data: DataFacts | None = None,
    as_suite: bool = False,
    **changes: Any,
) -> Task:
    """Return the task of a job of ``profile``, changed by ``--set`` assignments."""
    base = run_settings.profile(profile, [name])
    base = for_suite(base, cpus=2) if as_suite else base
    settings = run_settings.load(base, None, assignments).workloads[name]
    is_published = profile in PUBLISHED_PROFILES and data is None
    if is_published:
        settings = {**settings, "data": "/data"}
    return job_task(
        job(
            name,
            settings,
            data or (PUBLISHED[name] if is_published else drawn(name, profile)),
            **changes,
        ),
        profile,
    )


def test_the_digests_of_the_closed_tasks_are_these() -> None:
    found = {key: definition.digest for key, definition in closed_tasks().items()}
    assert found == DIGESTS


@pytest.mark.parametrize(
    ("name", "profile"),
    [(name, profile) for name in suite() for profile in workload(name).profiles],
)
def test_a_run_of_a_profile_is_closed(name: str, profile: str) -> None:
    found = task(name, profile)
    assert (found.kind, found.profile, found.differences) == ("closed", profile, ())
    assert found.digest == DIGESTS[name, profile]


def test_the_shorter_search_of_the_suite_is_a_closed_task_of_its_own() -> None:
    found = task("automl", "gpu", as_suite=True)
    assert (found.kind, found.profile) == ("closed", "gpu, in the suite")
    assert task("image-classification", "laptop", as_suite=True).profile == "laptop"


@pytest.mark.parametrize(
    ("assignment", "difference"),
    [
        ("target=0.001", "target 0.001 instead of"),
        ("train.epochs=60", "train.epochs 60 instead of 8"),
        ("train.batch=64", "train.batch 64 instead of 32"),
        ("train.optimizer=adam", "train.optimizer adam instead of sgd"),
        ("train.precision=mixed-int8", "train.precision 8 bits instead of 16 bits or more"),
        ("augment=none", "augment none instead of shift"),
        ("network.width=16", "network.width 16 instead of 8"),
        ("synthetic.seed=2", "synthetic.seed 2 instead of 1"),
        ("train.stop_at_target=true", "train.stop_at_target True instead of False"),
        ("train.stop_by=loss", "train.stop_by loss instead of quality"),
        ("train.schedule_epochs=9", "train.schedule_epochs 9 instead of none"),
        ("synthetic.target=0.001", "target 0.001 instead of"),
    ],
)
def test_a_changed_task_is_open_and_names_the_difference(assignment: str, difference: str) -> None:
    changes = ["train.nesterov=false"] if "adam" in assignment else []
    found = task("image-classification", "tiny", assignment, *changes)
    assert found.kind == "open"
    assert found.digest != DIGESTS["image-classification", "tiny"]
    assert any(text.startswith(difference) for text in found.differences)
    assert len(found.differences) == 1 + len(changes)


@pytest.mark.parametrize(
    "assignments",
    [
        ["train.ranks=2"],
        ["train.ranks=2", "parallel.mode=pipeline", "train.accumulate=4"],
        ["train.ranks=4", "train.communication.mode=torus"],
        ["train.device=cpu", "train.compile=on", "train.readers=1"],
        ["train.checkpoint_s=10", "train.checkpoint_share=1", "train.deterministic=true"],
        ["models=4", "train.evaluate_every=2", "train.precision=mixed-bf16"],
    ],
)
def test_how_a_machine_runs_it_does_not_change_the_task(assignments: list[str]) -> None:
    assert task("image-classification", "tiny", *assignments).kind == "closed"


def test_a_changed_language_model_is_open() -> None:
    for assignment, difference in (
        ("network.layers=3", "network.layers 3 instead of 2"),
        ("context=32", "context 32 instead of 64"),
        ("synthetic.vocabulary=48", "synthetic.vocabulary 48 instead of 64"),
        ("target=0.05", "target 0.05 instead of"),
    ):
        found = task("language-model", "tiny", assignment)
        assert found.kind == "open"
        assert [text.startswith(difference) for text in found.differences] == [True]
    assert task("language-model", "tiny", "train.ranks=2", "parallel.mode=sharded").kind == "closed"


def test_a_recipe_with_linear_scaling_adapts_to_the_batch() -> None:
    assert task("image-classification", "gpu", "train.batch=1024").kind == "closed"
    assert task("extreme-weather", "gpu", "train.batch=32").kind == "open"


def test_a_search_as_published_is_closed() -> None:
    published = ["search.v1=true", "search.inherit=false", "search.duration_s=43200"]
    assert task("automl", "reference", *published).kind == "closed"
    assert task("automl", "reference", "search.score_from_round=9").kind == "open"


def test_a_run_equal_to_another_profile_has_that_task() -> None:
    settings = run_settings.profile("laptop", ["image-classification"])
    name = "image-classification"
    record = job(name, settings.workloads[name], drawn(name, "laptop"))
    assert job_task(record, "tiny").profile == "laptop"


@pytest.mark.parametrize("name", suite())
def test_data_drawn_for_a_challenge_is_that_of_the_closed_task(name: str) -> None:
    settings = run_settings.load(run_settings.profile("tiny", [name]), None, ["synthetic.seed=77"])
    drawn_for_it = drawn(name, "tiny").model_copy(update={"fingerprint": "7" * 64})
    record = job(name, settings.workloads[name], drawn_for_it)
    found = job_task(record, "tiny", data_seed=77)
    assert (found.kind, found.digest) == ("closed", DIGESTS[name, "tiny"])
    assert job_task(record, "tiny", data_seed=78).differences == ("synthetic.seed 77 instead of 1",)
    spec = workload(name)
    section = spec.settings.model_validate(settings.workloads[name])
    assert profile_fingerprint(spec, section) == FINGERPRINTS[name]["tiny"]


def test_synthetic_data_that_no_machine_draws_is_an_open_task() -> None:
    found = task("image-classification", "tiny", data=SYNTHETIC)
    assert found.kind == "open"
    assert found.differences == ("changed synthetic data aaaaaaaaaaaa instead of synthetic data",)


def test_synthetic_data_with_other_contents_is_an_open_task() -> None:
    name, profile = "image-classification", "tiny"
    contents, drawn_data = CONTENTS[name][profile], drawn(name, profile)
    known = drawn_data.model_copy(update={"contents": contents})
    assert task(name, profile, data=known).kind == "closed"
    changed = drawn_data.model_copy(update={"contents": contents | {"train": "0" * 64}})
    assert task(name, profile, data=changed).kind == "open"


def test_the_contents_of_all_synthetic_data_are_known() -> None:
    assert {name: set(known) for name, known in CONTENTS.items()} == {
        name: set(known) for name, known in FINGERPRINTS.items()
    }


@pytest.mark.parametrize("name", suite())
def test_this_machine_draws_the_data_of_the_closed_tasks(name: str) -> None:
    spec = workload(name)
    facts = spec.load_code().prepare_data(spec.profile("tiny"), lambda *state: None)
    assert facts.fingerprint == FINGERPRINTS[name]["tiny"]
    assert facts.contents == CONTENTS[name]["tiny"]


@pytest.mark.parametrize("waves", [False, True])
def test_models_that_take_turns_are_an_open_task(handmade_run: HandmadeRun, waves: bool) -> None:
    handmade_run.plan(job_record(1))
    handmade_run.attempt(1, 0.0, *course(0.9))
    handmade_run.end()
    contents = Contents(handmade_run.folder)
    contents.folder.record.settings.bagging.__dict__["waves"] = waves
    (found,) = tasks(contents).values()
    assert found.kind == ("open" if waves else "closed")
    assert ("models in waves instead of at the same time" in found.differences) is waves


def test_own_data_is_an_open_task_with_its_checksum() -> None:
    own = IMAGENET.model_copy(update={"train": 512})
    changed = run_settings.load(
        run_settings.profile("tiny", ["image-classification"]), None, ["data=/data", "target=0.5"]
    )
    record = job("image-classification", changed.workloads["image-classification"], own)
    found = job_task(record, "tiny")
    assert found.kind == "open"
    assert "own data cccccccccccc instead of synthetic data" in found.differences


def test_the_reference_task_has_the_published_data() -> None:
    synthetic = task("image-classification", "reference", data=SYNTHETIC)
    assert synthetic.differences == ("synthetic data instead of the published data",)
    skipped = IMAGENET.model_copy(update={"skipped": 3})
    assert task("image-classification", "reference", data=skipped).kind == "open"


def test_twins_and_models_without_a_bootstrap_are_open() -> None:
    bag = BagRecord(model=0, models=2, bootstrap="multinomial", seed=1)
    for update, kind in (
        ({}, "closed"),
        ({"twins": True}, "open"),
        ({"bootstrap": "none"}, "open"),
    ):
        bagged = task("image-classification", "tiny", bag=bag.model_copy(update=update))
        assert bagged.kind == kind


def test_a_workload_that_is_not_installed_is_open() -> None:
    found = task("image-classification", "tiny", workload="not-installed")
    assert (found.kind, found.digest) == ("open", None)
    assert "not-installed" in found.differences[0]


def test_a_script_is_open() -> None:
    settings = run_settings.profile("tiny", ["command"]).workloads["command"]
    goal = Goal(quality="accuracy", better="higher", target=0.5, exponent=1)
    record = JobRecord(
        job=1,
        workload="command",
        repeat=0,
        seed=1,
        ranks=1,
        goal=goal,
        settings={**settings, "target": 0.5},
        data=SYNTHETIC,
    )
    found = job_task(record, "tiny")
    assert (found.kind, len(found.differences)) == ("open", 1)
    assert found.digest


def test_every_setting_that_is_left_out_exists() -> None:
    names = {
        name
        for spec in workloads().values()
        for name in flatten(spec.profile("tiny").model_dump(mode="json"), keep_empty=True)
    }
    left_to_papers = {key for settings in LEFT_TO_THE_PAPERS.values() for key in settings}
    for setting in NOT_IN_THE_TASK.keys() | left_to_papers:
        assert any(name == setting or name.startswith(f"{setting}.") for name in names), setting
