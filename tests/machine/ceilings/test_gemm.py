from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from tests.support.micro_tasks import CPU, make_task
from vflops.machine.ceilings import gemm
from vflops.machine.ceilings.precisions import PRECISIONS
from vflops.machine.ceilings.setting_search import Search
from vflops.machine.ceilings.trial import Candidate
from vflops.machine.devices import pick


@pytest.mark.parametrize("precision", ["fp64", "fp32", "bf16"])
def test_a_peak_has_its_shape_its_samples_and_its_check(precision: str) -> None:
    measurement = gemm.measure(make_task("gemm", "peak", precision))
    assert measurement.value is not None
    assert measurement.value > 0
    assert {"m", "n", "k", "layout", "threads"} == measurement.setting.keys()
    assert measurement.error is not None
    assert measurement.error <= PRECISIONS[precision].tolerance
    assert {trial.setting["layout"] for trial in measurement.tried} <= {"NN", "NT", "TN"}
    assert measurement.value in [
        trial.value for trial in measurement.tried if trial.setting == measurement.setting
    ]


def _garbage(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.normal_()


def _nan(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.fill_(math.nan)


def _nothing(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out


def _last_row_forgotten(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out[:-1].copy_(a[:-1] @ b)


def _rounded(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
    return out.copy_(a.bfloat16().float() @ b.bfloat16().float())


@pytest.mark.parametrize("wrong", [_garbage, _nan, _nothing, _last_row_forgotten, _rounded])
def test_a_wrong_product_has_a_reason_instead_of_a_speed(
    wrong: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "mm", wrong)
    measurement = gemm.measure(make_task("gemm", "peak", "fp32", seconds=0.1))
    assert measurement.value is None
    assert (measurement.reason or "").startswith("wrong result: relative error")
    assert "tolerance 5e-05" in (measurement.reason or "")


def test_operands_of_a_seed_are_the_same() -> None:
    first, again, other = (
        make_task("gemm", "peak", precision).item_seed for precision in ("fp32", "fp32", "bf16")
    )
    assert first == again != other


def test_lacking_precisions_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no such units")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    item = make_task("gemm", "peak", "fp8").item
    assert gemm.unavailable_reason(CPU, item) == "torch has no fp8 product on cpu: no such units"


def test_whole_waves_give_every_multiprocessor_as_many_tiles() -> None:
    for multiprocessors in (108, 132, 148):
        for m, n, _ in gemm.whole_waves(multiprocessors, depth=8192):
            assert (m // 256) * (n // 128) % multiprocessors == 0
    assert list(gemm.whole_waves(None, depth=8192)) == []


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16", "fp8"])
def test_an_accelerator_has_a_peak_or_a_reason(precision: str) -> None:
    if not torch.accelerator.is_available():
        pytest.skip("torch sees no accelerator")
    device = pick("auto")
    task = make_task("gemm", "peak", precision, seconds=1.5, device=device)
    reason = gemm.unavailable_reason(device, task.item)
    if reason is None:
        measurement = gemm.measure(task)
        assert measurement.value is not None, measurement.reason
        assert measurement.value > 1e11


def test_shapes_around_the_best_are_a_round_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A steady search over squares must not end the search before other shapes are tried."""
    order: list[str] = []
    attempt, start_round = Search.attempt, Search.start_round

    def attempted(search: Search, candidate: Candidate) -> float | None:
        shape = {candidate.setting[side] for side in "mnk"}
        order.append("square" if len(shape) == 1 else "other")
        return attempt(search, candidate)

    def started(search: Search) -> None:
        order.append("round")
        start_round(search)

    monkeypatch.setattr(Search, "attempt", attempted)
    monkeypatch.setattr(Search, "start_round", started)
    gemm.measure(make_task("gemm", "peak", "fp32"))
    first = order.index("round")
    assert set(order[:first]) == {"square"}
    assert set(order[first + 1 :]) == {"other"}
