"""What workloads ask of data of the user's, in the order that helps."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.errors import VflopsError
from vflops.workloads.contract.registry import workload


@pytest.mark.parametrize("name", ["image-classification", "extreme-weather"])
def test_a_wrong_path_is_said_before_a_missing_target(tmp_path: Path, name: str) -> None:
    spec = workload(name)
    settings = spec.profile("tiny").model_copy(update={"data": str(tmp_path / "nowhere")})
    with pytest.raises(VflopsError) as refused:
        spec.load_code().prepare_data(settings, lambda what, done, whole: None)
    assert "nowhere" in refused.value.message
    assert "target" not in refused.value.message


def test_own_images_need_a_target(tmp_path: Path) -> None:
    from PIL import Image

    for part in ("train", "val"):
        for label in ("a", "b"):
            (tmp_path / part / label).mkdir(parents=True)
            Image.new("RGB", (8, 8)).save(tmp_path / part / label / "1.png")
    spec = workload("image-classification")
    settings = spec.profile("tiny").model_copy(update={"data": str(tmp_path)})
    with pytest.raises(VflopsError, match="no target quality") as refused:
        spec.load_code().prepare_data(settings, lambda what, done, whole: None)
    assert refused.value.hint == "set one, for example --set target=0.8"
