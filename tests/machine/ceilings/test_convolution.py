from __future__ import annotations

import math

import pytest
import torch

from tests.support.micro_tasks import CPU, make_task
from vflops.machine.ceilings import convolution
from vflops.machine.ceilings.ceiling_plan import DIRECTIONS
from vflops.machine.devices import pick


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_direction_has_its_best_shape_and_all_that_were_tried(direction: str) -> None:
    measurement = convolution.measure(make_task("convolution", direction, "fp32", seconds=0.5))
    assert measurement.value is not None
    assert measurement.value > 0
    assert {"shape", "kernel", "channels", "size", "batch"} <= measurement.setting.keys()
    assert measurement.value in [
        trial.value for trial in measurement.tried if trial.setting == measurement.setting
    ]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("factor", [1.01, math.nan])
def test_a_wrong_convolution_has_a_reason_instead_of_a_speed(
    direction: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = convolution.call_of

    def wrong(*arguments: object) -> object:
        call = right(*arguments)  # type: ignore[arg-type]
        return lambda: factor * call()

    monkeypatch.setattr(convolution, "call_of", wrong)
    measurement = convolution.measure(make_task("convolution", direction, "fp32", seconds=5))
    assert measurement.value is None
    assert (measurement.reason or "").startswith("wrong result: relative error")


def test_what_torch_cannot_convolve_is_lacking_although_it_can_multiply() -> None:
    item = make_task("convolution", "forward", "fp8").item
    assert "fp8" in (convolution.unavailable_reason(CPU, item) or "")
    assert (
        convolution.unavailable_reason(CPU, make_task("convolution", "forward", "fp32").item)
        is None
    )


def test_an_int8_convolution_that_overflows_is_said_to_be_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(convolution, "product_unavailable_reason", lambda *_: None)
    item = make_task("convolution", "forward", "int8").item
    reason = convolution.unavailable_reason(CPU, item) or ""
    assert reason.startswith("torch has no int8 convolution on cpu")


def test_the_tuning_of_cudnn_comes_back() -> None:
    before = torch.backends.cudnn.benchmark
    convolution.measure(make_task("convolution", "forward", "fp32", seconds=0.05))
    assert torch.backends.cudnn.benchmark == before


@pytest.mark.gpu
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_an_accelerator_convolves_both_workloads(direction: str) -> None:
    if not torch.accelerator.is_available():
        pytest.skip("torch sees no accelerator")
    task = make_task("convolution", direction, "bf16", seconds=4.0, device=pick("auto"))
    measurement = convolution.measure(task)
    assert measurement.value is not None, measurement.reason
    parts = {str(trial.setting["shape"]).split(".")[0] for trial in measurement.tried}
    assert parts == {"resnet50", "weather"}
