"""A framework that is absent, too old or without the device is refused before anything starts."""

from __future__ import annotations

import importlib.util
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.sample_parts import Vflops
from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.train.backends import availability, factory
from vflops.train.backends.availability import (
    require_accelerator,
    require_framework,
    require_offered,
)


def test_a_framework_that_is_not_installed_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="TensorFlow is not installed") as caught:
        require_framework("tensorflow")
    assert caught.value.hint == "pip install 'vflops[tensorflow]', or use --framework pytorch"


@pytest.mark.parametrize(("version", "old"), [("0.9.2", True), ("0.10.0", False), ("1.0", False)])
def test_a_framework_that_is_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch, version: str, old: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"jax": ["jax"]})
    monkeypatch.setattr(metadata, "version", lambda name: version)
    if not old:
        require_framework("jax")
        return
    with pytest.raises(UsageError, match=r"JAX 0\.9\.2 is too old: vflops needs 0\.10 or newer"):
        require_framework("jax")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("print(0)", ""),
        ("print('a warning'); print(0)", ""),
        ("1 / 0", " (ZeroDivisionError: division by zero)"),
    ],
)
def test_a_framework_that_sees_no_accelerator_is_refused(
    monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    monkeypatch.setitem(availability._PROBES, "jax", program)
    with pytest.raises(UsageError) as error:
        require_accelerator("jax", "cuda")
    assert error.value.message == (f"JAX sees no accelerator{reason}, but torch computes on cuda")


def test_a_framework_that_does_not_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(availability._PROBES, "jax", "import time; time.sleep(60)")
    monkeypatch.setattr(availability, "_PROBE_S", 0.2)
    with pytest.raises(UsageError, match=r"JAX did not say within 0\.2 s whether it sees cuda"):
        require_accelerator("jax", "cuda")


@pytest.mark.parametrize("name", ["tensorflow", "mindspore"])
def test_frameworks_that_were_never_tested_on_accelerators_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is offered on CPUs, not on npu"):
        require_accelerator(name, "npu")


@pytest.mark.parametrize(
    ("device", "message"),
    [("npu", "JAX is offered on CPUs and cuda, not on npu"), ("cuda:3", "first accelerator, not")],
)
def test_untested_kinds_and_later_accelerators_are_refused(device: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        require_offered("jax", device)


def test_one_that_sees_it_passes_and_a_cpu_needs_no_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(availability._PROBES, "jax", "print(2)")
    require_accelerator("jax", "cuda")
    with pytest.raises(UsageError, match="JAX is offered on an accelerator with one rank, not w"):
        require_accelerator("jax", "cuda", 2)
    monkeypatch.setitem(availability._PROBES, "jax", "print(0)")
    require_accelerator("jax", "cpu", 2)


@pytest.mark.parametrize(("index", "ranks"), [(1, 1), (0, 2)])
def test_other_accelerators_than_the_first_are_refused(
    monkeypatch: pytest.MonkeyPatch, index: int, ranks: int
) -> None:
    context: Any = SimpleNamespace(record=SimpleNamespace(ranks=ranks))
    nothing: Any = None
    settings, device = TrainSettings(framework="jax"), torch.device("cuda", index)
    monkeypatch.setattr(factory, "require_framework", lambda name: None)
    joined = factory.joined_backend(context, settings, nothing, nothing, device)
    with (
        pytest.raises(UsageError, match="JAX is offered on the first accelerator with one rank"),
        joined,
    ):
        pass


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("run", "extreme-weather", "--framework", "jax"),
            "extreme-weather is trained with PyTorch only, not with jax",
        ),
        (
            ("run", "automl", "--framework", "jax"),
            "automl is trained with PyTorch only, not with jax",
        ),
        (("run", "image-classification", "--framework", "caffe"), "unknown framework 'caffe'"),
        (
            ("run", "image-classification", "--framework", "jax", "--kernels"),
            "kernels are profiled in PyTorch, but image-classification is trained with jax",
        ),
        (("run", "--framework", "jax"), "is trained with PyTorch only"),
        (("plan", "extreme-weather", "--framework", "jax"), "is trained with PyTorch only"),
        (
            ("scale", "image-classification", "--frameworks", "pytorch,caffe"),
            "unknown framework 'caffe' in --frameworks",
        ),
        (
            ("scale", "image-classification", "--frameworks", "jax,jax"),
            "--frameworks jax,jax: a name is given twice",
        ),
    ],
)
def test_the_command_refuses_before_anything_starts(
    vflops: Vflops, words: tuple[str, ...], said: str
) -> None:
    done = vflops(*words, "--profile", "tiny")
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
