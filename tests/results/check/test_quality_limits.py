"""Qualities that cannot be believed, by workload and data."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.record.formats.job import DataFacts
from vflops.record.readout.contents import Contents
from vflops.results.check.data_rules import check_evaluations
from vflops.results.check.quality_limits import quality_limit
from vflops.results.task.closed_tasks import closed_tasks
from vflops.results.task.published_data import CLIMATE, IMAGENET
from vflops.results.task.task import Task

YEARS = {"train years": "1979–2002", "validation years": "2003", "test years": "2004"}


def limit(workload: str, profile: str | None, **data: Any) -> float | None:
    """The limit of one model; without a profile, the task is open."""
    facts = {"synthetic": True, "train": 9, "validation": 1000, **data}
    record = job(1, data=DataFacts(path="/data", fingerprint="0" * 64, **facts))
    kind = "closed" if profile else "open"
    task = Task(workload=workload, kind=kind, digest=None, profile=profile or "tiny")
    found = quality_limit(record.model_copy(update={"workload": workload}), task)
    return found.model if found else None


def published(name: str) -> dict[str, Any]:
    data = IMAGENET if name == "image-classification" else CLIMATE
    train, validation, test = data.samples
    facts = {**dict(data.facts), **(YEARS if data is CLIMATE else {})}
    return {
        "synthetic": False,
        "train": train,
        "validation": validation,
        "test": test,
        "facts": facts,
    }


@pytest.mark.parametrize(
    ("workload", "profile", "data", "most"),
    [
        ("image-classification", "reference", published("image-classification"), 0.80),
        ("image-classification", None, published("image-classification"), 0.88),
        ("extreme-weather", "reference", published("extreme-weather"), 0.45),
        ("extreme-weather", None, published("extreme-weather"), 0.60),
        ("extreme-weather", "tiny", {}, 0.52),
        ("extreme-weather", None, {}, 0.97),
        ("extreme-weather", None, {"validation": 8}, None),  # chance decides
        ("image-classification", "gpu", {}, None),
        ("image-classification", None, {"synthetic": False}, None),  # the user's own images
        ("of-another-package", None, {}, None),
    ],
)
def test_the_limit_depends_on_task_and_data(
    workload: str, profile: str | None, data: dict[str, Any], most: float | None
) -> None:
    assert limit(workload, profile, **data) == most


def test_every_target_of_a_profile_is_below_its_limit() -> None:
    for (workload, profile), definition in closed_tasks().items():
        found = limit(workload, profile, synthetic=profile != "reference")
        target = definition.values["target"]
        assert found is None or float(target) < found, (workload, profile)


@pytest.mark.parametrize(("quality", "verdict"), [(0.9, "pass"), (1.0, "fail")])
def test_a_quality_above_its_limit_is_named_with_the_reason(
    handmade_run: HandmadeRun, quality: float, verdict: str
) -> None:
    write_system(handmade_run.folder)
    handmade_run.plan(job(1), ceilings=MEASUREMENTS)
    handmade_run.attempt(1, 1000.0, *course(0.6, 0.8, quality))
    handmade_run.end()
    outcome = check_evaluations(Contents(handmade_run.folder))
    assert outcome.verdict == verdict
    words = "the top-1 accuracy is 1, but at most 0.95 can be believed: the best of 10 honest runs"
    assert (words in outcome.evidence) is (verdict == "fail")
