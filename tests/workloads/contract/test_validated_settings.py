"""Recorded settings are validated once; different ones are not taken for the same."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from vflops.workloads.contract.validated_settings import validated_settings
from vflops.workloads.image_classification import settings as image_settings

KIND = image_settings.ImageSettings
TINY = image_settings.tiny().model_dump(mode="json")


def test_equal_settings_are_shared() -> None:
    first, second = (validated_settings(KIND, dict(TINY)) for _ in range(2))
    assert first is second
    assert first.section == TINY
    assert first.flat["train.epochs"] == TINY["train"]["epochs"]


def test_other_settings_are_others() -> None:
    longer = {**TINY, "train": {**TINY["train"], "epochs": 99}}
    assert validated_settings(KIND, longer).flat["train.epochs"] == 99


def test_an_invalid_value_is_refused_each_time() -> None:
    wrong = {**TINY, "train": {**TINY["train"], "epochs": 0}}
    for _ in range(2):
        with pytest.raises(ValidationError, match="epochs"):
            validated_settings(KIND, wrong)
