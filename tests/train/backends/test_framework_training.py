"""JAX in the real loop: the same samples, losses and checkpoints as with PyTorch.

All train in double precision, where rounding cannot hide a difference between two frameworks.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from tests.support import framework_training
from tests.support.framework_training import (
    parts_agree,
    pass_between,
    runs_out_of_memory,
    state_file,
    two_ranks_agree,
    two_ranks_in_fp16_agree,
)
from tests.support.never_stopped import NeverStopped
from tests.support.train_runs import evaluations, losses, planned, run_ranks, weights
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobStarted
from vflops.record.log.events import Log
from vflops.train.backends.factory import joined_backend
from vflops.train.context import JobContext
from vflops.train.phase_clock import Clock
from vflops.train.precision import Precision
from vflops.train.state_distance import relative_distance
from vflops.train.state_file import unpack
from vflops.workloads.contract.registry import workload

pytest.importorskip("jax", reason="pip install 'vflops[jax]'")

AGREE = 1e-9
STEPS = (*framework_training.STEPS, "network.blocks=[1]", "network.width=4")
"""With few layers, because XLA takes seconds to compile each."""


@pytest.fixture(scope="module")
def torch_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Log]:
    folder = planned(tmp_path_factory.mktemp("torch"), *STEPS)
    return folder, run_ranks(folder, DOUBLE="1")


@pytest.fixture(scope="module")
def jax_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, Log]:
    folder = planned(tmp_path_factory.mktemp("jax"), *STEPS, "train.framework=jax")
    return folder, run_ranks(folder, DOUBLE="1")


def first_weights(folder: RunFolder, framework: str) -> dict[str, bytes]:
    """Return the weights of a job before its first step."""
    record = folder.effective_job(1)
    settings = workload(record.workload).settings.model_validate(record.settings)
    train = settings.train.model_copy(update={"framework": framework})
    code = workload(record.workload).load_code().create(settings, record.data)
    attempt = folder.attempt_folder(1, 0)
    context = JobContext(record, 0, 0, attempt, None, Clock(), NeverStopped())
    precision = Precision.named(train.precision, "cpu")
    with joined_backend(context, train, code, precision, torch.device("cpu")) as (_, backend):
        weights = backend.weights()
    assert weights is not None
    return {name: tensor.numpy().tobytes() for name, tensor in weights.items()}


def test_both_start_with_the_weights_of_the_workload(tmp_path: Path) -> None:
    folder = planned(tmp_path, *STEPS, "network.stem=imagenet")
    record = folder.effective_job(1)
    spec = workload(record.workload)
    code = spec.load_code().create(spec.settings.model_validate(record.settings), record.data)
    arrays = code.initial_weights(record.seed)
    expected = {name: array.tobytes() for name, array in arrays.items()}
    assert first_weights(folder, "pytorch") == expected
    assert first_weights(folder, "jax") == expected


def test_losses_and_qualities_agree(
    torch_run: tuple[RunFolder, Log], jax_run: tuple[RunFolder, Log]
) -> None:
    ours, theirs = losses(torch_run[1]), losses(jax_run[1])
    assert len(ours) >= 24
    assert theirs == pytest.approx(ours, abs=AGREE)
    qualities = [[row.quality for row in evaluations(log)] for _, log in (torch_run, jax_run)]
    assert qualities[0] == qualities[1]


def test_the_record_names_the_framework(jax_run: tuple[RunFolder, Log]) -> None:
    started = next(e.payload(JobStarted) for e in jax_run[1].events if e.kind == "job")
    assert started.framework == "jax"
    assert started.framework_version is not None
    assert weights(jax_run[0]) is not None


def test_a_checkpoint_is_that_of_pytorch(
    torch_run: tuple[RunFolder, Log], jax_run: tuple[RunFolder, Log]
) -> None:
    paths = [state_file(folder, 16) for folder, _ in (torch_run, jax_run)]
    ours, theirs = (unpack(path.read_bytes(), path.name) for path in paths)
    for kind in ("model", "optimizer"):
        assert theirs[kind].keys() == ours[kind].keys()
    assert theirs["model"]["stem.1.num_batches_tracked"] == 16
    assert relative_distance(*paths) < AGREE


@pytest.mark.frameworks
def test_a_checkpoint_of_one_is_resumed_by_another(
    torch_run: tuple[RunFolder, Log], tmp_path: Path
) -> None:
    parts_agree(pass_between(tmp_path, "jax", *STEPS, double=True), torch_run[1], AGREE)


@pytest.mark.frameworks
def test_two_ranks_train_as_with_pytorch(tmp_path: Path) -> None:
    two_ranks_agree(tmp_path, "jax", double=True, within=AGREE)


@pytest.mark.frameworks
def test_two_ranks_train_in_fp16(tmp_path: Path) -> None:
    two_ranks_in_fp16_agree(tmp_path, "jax")


@pytest.mark.parametrize(
    "framework", ["pytorch", pytest.param("jax", marks=pytest.mark.frameworks)]
)
def test_running_out_of_memory_is_a_clear_error(framework: str, tmp_path: Path) -> None:
    runs_out_of_memory(tmp_path, framework, memory_mb=1024)


@pytest.mark.frameworks
def test_bf16_trains(tmp_path: Path) -> None:
    few = ("synthetic.train=64", "train.precision=mixed-bf16", "train.framework=jax")
    found = losses(run_ranks(planned(tmp_path, *STEPS, *few)))
    assert all(math.isfinite(loss) for loss in found) and len(found) == 6


@pytest.mark.frameworks
def test_fp16_trains_with_a_loss_scale_in_its_checkpoints(tmp_path: Path) -> None:
    few = ("synthetic.train=64", "train.precision=mixed-fp16", "train.framework=jax")
    folder = planned(tmp_path, *STEPS, *few)
    log = run_ranks(folder)
    assert all(math.isfinite(loss) for loss in losses(log)) and len(losses(log)) == 6
    path = state_file(folder, 4)
    scaler = unpack(path.read_bytes(), path.name)["scaler"]
    reference = torch.amp.GradScaler("cpu")
    assert scaler.keys() == reference.state_dict().keys()
    reference.load_state_dict(scaler)
    assert (reference.get_scale(), scaler["_growth_tracker"]) == (2.0**16, 4)
