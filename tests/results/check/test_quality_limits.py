"""Qualities that cannot be believed, by workload and data."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.sample_parts import MEASUREMENTS, write_system
from tests.support.text_jobs import FLOOR, TOKENS, text_job
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.data.text.floor import floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.data_rules import check_evaluations
from vflops.results.check.quality_limits import quality_faults, quality_limit
from vflops.results.task.closed_tasks import closed_tasks
from vflops.results.task.published_data import CLIMATE, IMAGENET
from vflops.results.task.task import Task
from vflops.workloads.contract.registry import workload as find

YEARS = {"train years": "1979–2002", "validation years": "2003", "test years": "2004"}


def limit(workload: str, profile: str | None, **data: Any) -> float | None:
    """The limit of one model; without a profile, the task is open."""
    facts = {"synthetic": True, "train": 9, "validation": 1000, **data}
    record = job(1, data=DataFacts(path="/data", fingerprint="0" * 64, **facts))
    if workload == "language-model" and profile is not None:  # its text follows from the settings
        settings = find(workload).profiles[profile]().model_dump(mode="json")
        record = record.model_copy(update={"settings": settings})
    kind = "closed" if profile else "open"
    task = Task(workload=workload, kind=kind, digest=None, profile=profile or "tiny")
    found = quality_limit(record.model_copy(update={"workload": workload}), task)
    return found.model if found else None


def published(name: str) -> dict[str, Any]:
    data = IMAGENET if name == "image-classification" else CLIMATE
    train, validation, test = (
        number if isinstance(number, int) else max(number) for number in data.samples
    )
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


OPEN = Task(workload="language-model", kind="open", digest=None, profile="tiny")


def test_synthetic_text_is_limited_by_its_source_and_villes_inequality() -> None:
    found = quality_limit(text_job(), OPEN)
    assert found is not None
    # P(a model that has not seen the text is better) ≤ 10⁻¹²
    assert found.model == found.ensemble == math.exp(math.log(1e12) / TOKENS - FLOOR.loss)
    assert f"a loss of {FLOOR.loss:.4f} on these {TOKENS:,} tokens" in found.source


def test_the_floor_that_a_job_states_does_not_move_the_limit_of_drawn_text() -> None:
    assert quality_limit(text_job(floor=0.1), OPEN) == quality_limit(text_job(), OPEN)


def test_shards_of_synthetic_text_are_drawn_again_from_their_recipe() -> None:
    recipe = TextRecipe(vocabulary=80, seed=7, segments=8, span=6)
    floor = floor_of_recipe(recipe, "val", TOKENS).loss
    assert abs(floor - FLOOR.loss) > 0.01
    found = quality_limit(text_job(floor, "/shards", recipe), OPEN)
    assert found is not None
    assert found.model == math.exp(math.log(1e12) / TOKENS - floor)
    assert quality_limit(text_job(1.0, "/shards", recipe), OPEN) == found


def test_experts_are_allowed_what_their_places_can_reveal_of_later_tokens() -> None:
    found = quality_limit(text_job(experts=4, bag=BAG | {"models": 1}), OPEN)
    assert found is not None
    # 32 batches of 16 windows; in each of 2 layers, 4 experts are full at one of 1,025 choices
    revealed = 32 * 2 * 4 * math.log(1 + 16 * 64)
    assert found.model == found.ensemble
    assert -math.log(found.model) == pytest.approx(
        FLOOR.loss - (math.log(1e12) + revealed) / TOKENS, rel=1e-12
    )
    assert "experts can learn little about later tokens" in found.source


BAG = {"model": 0, "models": 9, "bootstrap": "poisson", "seed": 1}


@pytest.mark.parametrize(
    ("network", "bag", "model", "ensemble"),
    [
        ({"experts": 64}, None, 0.05, 0.05),  # more could be revealed than can be believed
        # 32 batches, 2 experts that are full at one of 1,025 choices; nine times that is too much
        ({"experts": 2, "layers": 1}, BAG, 32 * 2 * math.log(1025) / TOKENS / FLOOR.loss, 0.05),
        ({"experts": 4, "experts_per_token": 1}, BAG, 0.0, 0.0),  # first choices only
    ],
    ids=["many experts", "ensemble", "one expert per token"],
)
def test_experts_lower_the_floor_by_five_percent_at_most(
    network: dict[str, Any], bag: dict[str, Any] | None, model: float, ensemble: float
) -> None:
    found = quality_limit(text_job(bag=bag, **network), OPEN)
    dense = quality_limit(text_job(), OPEN)
    assert found is not None and dense is not None
    shares = [math.log(most / dense.model) / FLOOR.loss for most in (found.model, found.ensemble)]
    assert shares == pytest.approx([model, ensemble], abs=1e-12)


@pytest.mark.parametrize(("quality", "verdict"), [(0.9, "fail"), (0.24, "fail"), (0.2, "pass")])
def test_a_model_with_experts_far_better_than_the_source_fails(
    handmade_run: HandmadeRun, quality: float, verdict: str
) -> None:
    faulty = faults(handmade_run, text_job(experts=4), quality, -math.log(quality))
    assert bool(faulty) is (verdict == "fail")


def faults(run: HandmadeRun, record: JobRecord, quality: float, loss: float | None) -> list[str]:
    run.plan(record)
    notes = course(0.1, quality)
    notes = [
        (kind, {**facts, "loss": loss} if kind == "evaluation" else facts) for kind, facts in notes
    ]
    notes[6] = (notes[6][0], {**notes[6][1], "loss": -math.log(0.1)})
    run.attempt(1, 1000.0, *notes)
    return [fault for _, fault in quality_faults(Contents(run.folder))]


def test_a_loss_just_below_the_margin_of_chance_is_believed(handmade_run: HandmadeRun) -> None:
    loss = FLOOR.loss - 0.999 * FLOOR.margin(1e-12)
    assert faults(handmade_run, text_job(), math.exp(-loss), loss) == []


def test_a_loss_below_the_floor_fails(handmade_run: HandmadeRun) -> None:
    loss = FLOOR.loss - 1.001 * FLOOR.margin(1e-12)
    (fault,) = faults(handmade_run, text_job(), math.exp(-loss), loss)
    assert "the source of this text itself has a loss of" in fault


def test_a_quality_that_is_not_that_of_its_loss_fails(handmade_run: HandmadeRun) -> None:
    (fault,) = faults(handmade_run, text_job(), 0.2, -math.log(0.19))
    assert fault == "the next-token probability is 0.2, not exp(−1.66073)"


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
    words = "the top-1 accuracy is 1, but at most 0.96 can be believed: the best of 56 honest runs"
    assert (words in outcome.evidence) is (verdict == "fail")
