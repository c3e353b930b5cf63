"""The recorded facts of a text that follow from its settings, its samples or its source."""

from __future__ import annotations

from functools import lru_cache

from vflops.data.text.floor import Floor, floor_of_recipe
from vflops.data.text.text_recipe import TextRecipe
from vflops.errors import UsageError, format_value
from vflops.record.formats.job import JobRecord
from vflops.results.score.loss_score import BYTES_PER_TOKEN, FLOOR

_ROUNDING = 1e-6
"""The largest difference between two records of the same floor."""


def text_fact_fault(record: JobRecord) -> str | None:
    """Return a fact of the text of a language model that cannot be true; None if there is none."""
    if record.workload != "language-model":
        return None
    return _token_fault(record) or _bytes_fault(record) or _floor_fault(record)


def drawn_floor(record: JobRecord) -> Floor | None:
    """Return the floor of the synthetic text of a job, drawn again; None without a recipe or text.

    Raise ``UsageError`` if the recorded recipe cannot be drawn.
    """
    recipe = _recipe(record)
    tokens = record.data.validation * record.settings["context"]
    return None if recipe is None or not tokens else _floor(recipe, tokens)


def _token_fault(record: JobRecord) -> str | None:
    data, context = record.data, record.settings["context"]
    for name, samples in (("tokens", data.train), ("validation tokens", data.validation)):
        recorded = data.facts.get(name)
        if recorded != samples * context:
            counted = f"{samples:,} samples of {context:,} tokens have {samples * context:,}"
            return f"the fact {name!r} is {format_value(recorded)}, but {counted}"
    return None


def _bytes_fault(record: JobRecord) -> str | None:
    data = record.data
    size = data.facts.get(BYTES_PER_TOKEN)
    if size is None:
        return None
    stated = f"{format_value(size)} bytes per token are recorded"
    if data.synthetic:
        return f"{stated}, but synthetic text does not consist of bytes"
    if isinstance(size, str) or not size > 0:
        return f"{stated}: it must be a number above 0"
    if data.facts.get("tokenizer") == "bytes" and size > 1:
        return f"{stated}, but a token is one byte or a separator"
    return None


def _floor_fault(record: JobRecord) -> str | None:
    """Return what is wrong with the floor that reports show."""
    recorded = record.data.facts.get(FLOOR)
    if not record.data.synthetic:
        if recorded is None:
            return None
        return f"a floor of {format_value(recorded)} is recorded, but only synthetic text has one"
    try:
        floor = drawn_floor(record)
    except UsageError as error:
        return f"the recorded recipe cannot be drawn: {error.message}"
    if floor is None:
        reason = "its recipe is not recorded" if record.data.validation else "no text is held out"
        return f"the floor of the synthetic text cannot be computed: {reason}"
    if not isinstance(recorded, float) or abs(recorded - floor.loss) > _ROUNDING:
        is_recorded = f"{format_value(recorded)} is recorded"
        return f"the floor of the text is {floor.loss:.6f}, but {is_recorded}"
    return None


def _recipe(record: JobRecord) -> TextRecipe | None:
    """Return what the synthetic text of a job was drawn from; None if it is not recorded."""
    if record.settings["data"] is not None:
        return TextRecipe.from_facts(record.data.facts)
    synthetic = record.settings["synthetic"]
    return TextRecipe(vocabulary=synthetic["vocabulary"], seed=synthetic["seed"])


@lru_cache(maxsize=16)
def _floor(recipe: TextRecipe, tokens: int) -> Floor:
    return floor_of_recipe(recipe, "val", tokens)
