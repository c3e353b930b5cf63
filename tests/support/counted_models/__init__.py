"""Small models of all kinds, whose counts the tests compare with torch's FlopCounterMode."""

from __future__ import annotations

from tests.support.counted_models import contexts, convolutions, dense, sequences, special
from tests.support.counted_models.definition import CountedModel

FAMILIES = {
    "convolutions": convolutions.MODELS,
    "dense layers": dense.MODELS,
    "sequences": sequences.MODELS,
    "special": special.MODELS,
    "contexts": contexts.MODELS,
}
MODELS: dict[str, CountedModel] = {
    model.name: model for models in FAMILIES.values() for model in models
}
