"""JAX on a GPU: it computes what PyTorch does there, and trains through the engine.

Both compute products in fp32 without TF32, from the same weights and on the same samples.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.support.framework_training import SLOWLY, STEPS, change_framework
from tests.support.train_runs import RANK, losses, losses_by_step, planned
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobStarted
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


def trained(folder: RunFolder, **environment: str) -> Log:
    code, log = attempt(folder, **environment)
    assert code == 0, log.events[-1]
    return log


AGREE = 1e-4
"""At the learning rate of ``SLOWLY``, 24 steps do not amplify rounding in fp32: the bound of the
conformance tests."""


@pytest.fixture(scope="module")
def torch_losses(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of PyTorch by step."""
    folder = planned(tmp_path_factory.mktemp("torch"), *STEPS, SLOWLY)
    found = losses_by_step(trained(folder, EVERY_LOSS="1"))
    assert sorted(found) == list(range(1, 25))
    return found


def test_the_losses_of_every_step_are_those_of_pytorch(
    torch_losses: dict[int, float], tmp_path: Path
) -> None:
    folder = planned(tmp_path, *STEPS, SLOWLY, "train.framework=jax")
    log = trained(folder, EVERY_LOSS="1")
    assert (started(log).framework, started(log).device) == ("jax", "cuda")
    assert losses_by_step(log) == pytest.approx(torch_losses, abs=AGREE)


@pytest.mark.parametrize(("first", "second"), [("jax", "pytorch"), ("pytorch", "jax")])
def test_a_checkpoint_of_one_is_resumed_by_the_other(
    first: str, second: str, torch_losses: dict[int, float], tmp_path: Path
) -> None:
    folder = planned(tmp_path, *STEPS, SLOWLY, f"train.framework={first}")
    code, _ = attempt(folder, KILL_AFTER="10")
    assert code == -signal.SIGKILL
    change_framework(folder, second)
    log = trained(folder, EVERY_LOSS="1")
    (event,) = (event for event in log.events if event.kind == "resumed")
    assert (event.data["step"], started(log).framework) == (8, second)
    expected = {step: loss for step, loss in torch_losses.items() if step > 8}
    assert losses_by_step(log) == pytest.approx(expected, abs=AGREE)


def started(log: Log) -> JobStarted:
    return next(event.payload(JobStarted) for event in log.events if event.kind == "job")


@pytest.mark.parametrize("precision", ["mixed-bf16", "mixed-fp16"])
def test_a_training_in_16_bits_learns(precision: str, tmp_path: Path) -> None:
    log = trained(planned(tmp_path, *STEPS, f"train.precision={precision}", "train.framework=jax"))
    found = losses(log)
    assert len(found) == 24
    assert sum(found[-4:]) < sum(found[:4])
