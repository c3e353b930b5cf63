"""A job that trained a language model on synthetic text, and the floor of that text."""

from __future__ import annotations

from typing import Any

from tests.support.trained_runs import job
from vflops.data.text.floor import floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.record.formats.job import DataFacts, Goal, JobRecord, SampleUnit
from vflops.workloads.contract.registry import workload

TRAIN, CONTEXT = 4095, 64
TOKENS = (2 * 16_384 - 1) // CONTEXT * CONTEXT
"""Tokens of validation."""
FLOOR = floor_of_recipe(TextRecipe(vocabulary=64, seed=1), "val", TOKENS)


def text_job(
    floor: float | None = FLOOR.loss,
    data: str | None = None,
    recipe: TextRecipe | None = None,
    bag: dict[str, Any] | None = None,
    **network: Any,
) -> JobRecord:
    """A job of the profile ``tiny`` of the language model, with a recorded floor."""
    facts: dict[str, int | float | str] = {
        "tokens": TRAIN * CONTEXT,
        "validation tokens": TOKENS,
        "vocabulary": 64,
        "tokenizer": "synthetic",
    }
    facts |= {} if recipe is None else recipe.facts()
    if floor is not None:
        facts["floor"] = floor
    tiny = workload("language-model").profile("tiny").model_copy(update={"data": data})
    settings = tiny.model_dump(mode="json")
    settings["network"] |= network
    return job(
        1,
        workload="language-model",
        settings=settings,
        goal=Goal(
            quality="next-token probability",
            better="higher",
            target=0.13,
            exponent=5,
            of_loss="exp(-loss)",
        ),
        data=DataFacts(
            path="/data",
            fingerprint="0" * 64,
            synthetic=True,
            train=TRAIN,
            validation=TOKENS // CONTEXT,
            facts=facts,
            unit=SampleUnit(name="tokens", count=CONTEXT),
        ),
        bag=bag,
    )
