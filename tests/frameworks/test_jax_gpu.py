"""JAX on a GPU: it computes what PyTorch does there, and trains and resumes through the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.support.framework_training import SLOWLY, STEPS, agree, change_framework
from tests.support.train_runs import RANK, losses, planned
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import FrameworkCounted, JobStarted
from vflops.record.log.events import Log
from vflops.testing.backends import BackendConformance
from vflops.testing.half_backends import HalfPrecisionConformance
from vflops.train.backends.array_backend import Recipe
from vflops.train.backends.availability import require_accelerator
from vflops.train.backends.jax_backend import JaxBackend
from vflops.workloads.contract.classifier import Arrays, Classifier

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no accelerator"),
    pytest.mark.skipif(find_spec("jax") is None, reason="pip install 'vflops[jax]'"),
]

AGREE = 1e-3
"""Of losses in fp32 at the learning rate of ``SLOWLY``, 0.001: there, PyTorch in fp32 is 2e-4 from
itself in float64 after 20 steps (``vflops.testing.backends``). Twice that, and a margin."""


@pytest.fixture(scope="module", autouse=True)
def jax_sees_the_gpu() -> None:
    """Skip these tests if JAX was installed for CPUs only."""
    try:
        require_accelerator("jax", "cuda")
    except UsageError as error:
        pytest.skip(str(error))


class TestConformance(BackendConformance):
    device = "cuda"

    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> JaxBackend:
        return JaxBackend(classifier, recipe, weights)


class TestHalfPrecisions(HalfPrecisionConformance):
    device = "cuda"

    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> JaxBackend:
        return JaxBackend(classifier, recipe, weights)


def attempt(folder: RunFolder, **environment: str) -> tuple[int, Log]:
    """Train in a new interpreter, since a fork cannot use a GPU; return exit code and log."""
    number = folder.next_attempt(1)
    directory = folder.attempt_folder(1, number)
    directory.mkdir(parents=True)
    one = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "1"}
    with (directory / "rank-0.log").open("wb") as log:
        done = subprocess.run(
            [sys.executable, str(RANK), str(folder.path), "1", str(number)],
            env={**os.environ, **one, **environment},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=900,
            check=False,
        )
    return done.returncode, folder.history().jobs[1][-1]


def trained(folder: RunFolder) -> Log:
    code, log = attempt(folder)
    assert code == 0, log.events[-1]
    return log


def started(log: Log) -> JobStarted:
    return next(event.payload(JobStarted) for event in log.events if event.kind == "job")


@pytest.fixture(scope="module")
def torch_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return trained(planned(tmp_path_factory.mktemp("torch"), *STEPS, SLOWLY))


def test_a_training_in_fp32_has_the_losses_of_pytorch(torch_log: Log, tmp_path: Path) -> None:
    log = trained(planned(tmp_path, *STEPS, SLOWLY, "train.framework=jax"))
    assert (started(log).framework, started(log).device) == ("jax", "cuda")
    assert started(torch_log).device == "cuda"
    agree(log, torch_log, AGREE)
    (counted,) = (e.payload(FrameworkCounted) for e in log.events if e.kind == "framework-count")
    assert counted.source == "XLA"


@pytest.mark.parametrize(("first", "second"), [("jax", "pytorch"), ("pytorch", "jax")])
def test_a_checkpoint_of_one_is_resumed_by_another(
    first: str, second: str, torch_log: Log, tmp_path: Path
) -> None:
    folder = planned(tmp_path, *STEPS, SLOWLY, f"train.framework={first}")
    code, _ = attempt(folder, KILL_AFTER="10")
    assert code != 0
    change_framework(folder, second)
    log = trained(folder)
    (event,) = (event for event in log.events if event.kind == "resumed")
    assert (event.data["step"], started(log).framework) == (8, second)
    agree(log, torch_log, AGREE)


@pytest.mark.parametrize("precision", ["mixed-bf16", "mixed-fp16"])
def test_a_training_in_16_bits_learns(precision: str, tmp_path: Path) -> None:
    log = trained(planned(tmp_path, *STEPS, f"train.precision={precision}", "train.framework=jax"))
    found = losses(log)
    assert len(found) == 24
    assert sum(found[-4:]) < sum(found[:4])
