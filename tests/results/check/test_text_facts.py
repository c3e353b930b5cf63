"""Facts of a text that cannot be true."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.text_jobs import CONTEXT, FLOOR, TOKENS, text_job
from tests.support.trained_runs import HandmadeRun, course
from vflops.data.text.floor import floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.data_rules import check_evaluations
from vflops.results.check.rule import Outcome

RECIPE = TextRecipe(vocabulary=80, seed=7, segments=8, span=6)
OTHER_FLOOR = floor_of_recipe(RECIPE, "val", TOKENS).loss


def with_facts(record: JobRecord, synthetic: bool, **facts: Any) -> JobRecord:
    """Other facts, with ``_`` for a space in their names; None deletes one."""
    changed = record.data.facts | {name.replace("_", " "): fact for name, fact in facts.items()}
    kept = {name: fact for name, fact in changed.items() if fact is not None}
    data = record.data.model_copy(update={"facts": kept, "synthetic": synthetic})
    return record.model_copy(update={"data": data})


def judged(run: HandmadeRun, record: JobRecord) -> Outcome:
    """The rule ``evaluated`` on a training that did nothing wrong."""
    run.plan(record)
    notes = [
        (kind, {**facts, "evaluated": TOKENS // CONTEXT} if kind == "evaluation" else facts)
        for kind, facts in course(0.1, 0.15)
    ]
    run.attempt(1, 1000.0, *notes)
    return check_evaluations(Contents(run.folder))


def drawn(**facts: Any) -> JobRecord:
    """A job on the text of its settings."""
    return with_facts(text_job(), True, **facts)


def exported(**facts: Any) -> JobRecord:
    """A job on synthetic text in a folder of the user."""
    return with_facts(text_job(OTHER_FLOOR, "/shards", RECIPE), True, **facts)


def real(**facts: Any) -> JobRecord:
    """A job on real text, read as bytes."""
    return with_facts(text_job(None, "/text"), False, **{"tokenizer": "bytes", **facts})


@pytest.mark.parametrize(
    "record",
    [
        drawn(),
        exported(),
        real(),
        real(bytes_per_token=0.99),
        real(bytes_per_token=1.0),
        real(bytes_per_token=4.2, tokenizer="gpt2"),
    ],
)
def test_true_facts_pass(handmade_run: HandmadeRun, record: JobRecord) -> None:
    outcome = judged(handmade_run, record)
    assert outcome.verdict == "pass", outcome.evidence


COUNTED = "4,095 samples of 64 tokens have 262,080"
NO_RECIPE = "the floor of the synthetic text cannot be computed: its recipe is not recorded"


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (drawn(tokens=999), f"the fact 'tokens' is 999, but {COUNTED}"),
        (drawn(tokens=None), f"the fact 'tokens' is None, but {COUNTED}"),
        (
            real(validation_tokens=10**9),
            "the fact 'validation tokens' is 1000000000, but 511 samples of 64 tokens have 32,704",
        ),
        (
            drawn(bytes_per_token=4.0),
            "4.0 bytes per token are recorded, but synthetic text does not consist of bytes",
        ),
        (
            real(bytes_per_token=4.0),
            "4.0 bytes per token are recorded, but a token is one byte or a separator",
        ),
        (
            real(bytes_per_token=-4.0, tokenizer="gpt2"),
            "-4.0 bytes per token are recorded: it must be a number above 0",
        ),
        (
            real(bytes_per_token="4"),
            "'4' bytes per token are recorded: it must be a number above 0",
        ),
        (real(floor=0.5), "a floor of 0.5 is recorded, but only synthetic text has one"),
        (drawn(floor=1.0), f"the floor of the text is {FLOOR.loss:.6f}, but 1.0 is recorded"),
        (drawn(floor=None), f"the floor of the text is {FLOOR.loss:.6f}, but None is recorded"),
        (exported(floor=1.0), f"the floor of the text is {OTHER_FLOOR:.6f}, but 1.0 is recorded"),
        (
            exported(floor=None),
            f"the floor of the text is {OTHER_FLOOR:.6f}, but None is recorded",
        ),
        (exported(**dict.fromkeys(RECIPE.facts())), NO_RECIPE),
        (exported(**dict.fromkeys(RECIPE.facts()), floor=None), NO_RECIPE),
        (
            exported(longest_copy=-5),
            "the recorded recipe cannot be drawn: synthetic text: span is -5",
        ),
    ],
)
def test_facts_that_cannot_be_true_fail(
    handmade_run: HandmadeRun, record: JobRecord, fault: str
) -> None:
    outcome = judged(handmade_run, record)
    assert (outcome.verdict, outcome.evidence) == ("fail", f"job 1: {fault}")
    assert str(outcome.where).endswith("jobs/1/job.json")
