"""What a framework does not offer is refused with what would work."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from vflops.config.frameworks import FRAMEWORKS, NAMES
from vflops.config.training import TrainSettings
from vflops.train.backends import factory


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"optimizer": "lars"}, "JAX is offered with optimizer sgd, not lars: use "),
        (
            {"precision": "mixed-fp8"},
            "precision fp32, mixed-bf16 or mixed-fp16, not mixed-fp8: use train.p",
        ),
        (
            {"ranks": 2, "parallel": {"mode": "sharded"}},
            "train.parallel is not offered with framework jax: leave it out or use train.f",
        ),
        ({"ghosts": 2}, "train.ghosts is not offered with framework jax: leave it out or"),
        ({"compile": "off"}, "train.compile is not offered with framework jax"),
        ({"deterministic": True}, "train.deterministic is not offered"),
        ({"batch_norm": "synchronised"}, "train.batch_norm is not offered"),
        (
            {"ranks": 2, "communication": {"precision": "fp16"}},
            "train.communication is not offered",
        ),
    ],
)
def test_what_jax_does_not_offer_is_refused(settings: dict[str, Any], words: str) -> None:
    TrainSettings.model_validate(settings)
    with pytest.raises(ValidationError) as caught:
        TrainSettings.model_validate({**settings, "framework": "jax"})
    assert words in str(caught.value)


def test_an_unknown_framework_is_refused() -> None:
    with pytest.raises(ValidationError, match="'pytorch', 'jax', 'tensorflow' or 'mindspore'"):
        TrainSettings.model_validate({"framework": "caffe"})


def test_several_ranks_are_refused_where_they_are_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"framework": "mindspore", "ranks": 2}
    assert TrainSettings.model_validate(settings).ranks == 2
    alone = replace(FRAMEWORKS["mindspore"], several_ranks=False)
    monkeypatch.setitem(FRAMEWORKS, "mindspore", alone)
    with pytest.raises(ValidationError, match="with one rank here, not 2: train several model"):
        TrainSettings.model_validate(settings)


def test_every_framework_has_a_backend() -> None:
    assert ("pytorch", *FRAMEWORKS) == NAMES
    assert factory._BACKENDS.keys() == FRAMEWORKS.keys()
