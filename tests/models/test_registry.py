"""Models by name: an unknown model is one clear line with the nearest known name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vflops.errors import UsageError
from vflops.models.model_registry import BUILT_IN, load, model
from vflops.models.resnet import ResNet, resnet50, resnet50_v1


@pytest.mark.parametrize("spec", BUILT_IN, ids=lambda spec: spec.name)
def test_every_built_in_model_builds_and_has_its_loss(spec) -> None:  # type: ignore[no-untyped-def]
    with torch.device("meta"):
        network = spec.load()()
        inputs = [
            torch.empty(2, *given.shape, dtype=getattr(torch, given.dtype))
            for given in spec.inputs()
        ]
        assert spec.load_loss()(network(*inputs)).shape == ()


def test_both_resnets_have_the_published_parameters() -> None:
    for build in (resnet50, resnet50_v1):
        with torch.device("meta"):
            assert sum(p.numel() for p in build().parameters()) == 25_557_032


def test_v1_and_v15_differ_only_in_where_the_stride_is() -> None:
    with torch.device("meta"):
        v1, v15 = resnet50_v1(), resnet50()
    strides = [
        {
            name: module.stride
            for name, module in network.named_modules()
            if "stages.1.0.conv" in name
        }
        for network in (v1, v15)
    ]
    assert [stride["stages.1.0.conv1"] for stride in strides] == [(2, 2), (1, 1)]
    assert [stride["stages.1.0.conv2"] for stride in strides] == [(1, 1), (2, 2)]


def test_a_small_resnet_computes_and_trains() -> None:
    torch.manual_seed(0)
    network = ResNet((1, 1), classes=3, width=8)
    scores = network(torch.randn(4, 3, 32, 32))
    assert scores.shape == (4, 3)
    scores.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("resnet5", "unknown model 'resnet5'", "resnet50"),
        ("extreme-weather", "is a workload, expected a model", "vflops run extreme-weather"),
        ("nowhere.at.all:Model", "no module named 'nowhere'", "install it"),
        ("torch.nn:Linnear", "unknown name 'Linnear' in torch.nn", "Linear"),
        ("torch:", "is not the name of a model", "package.module:callable"),
        ("math:pi", "math:pi is a float", "callable"),
    ],
)
def test_a_model_that_cannot_be_had(name: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        model(name).load()
    assert message in caught.value.message
    assert hint in str(caught.value.hint)


def test_a_module_that_fails_to_import_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_model.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match="cannot import broken_model: ZeroDivisionError"):
        load("broken_model:Model")
