"""What is known of a framework when jobs are submitted is refused then, not when they start."""

from __future__ import annotations

import importlib.util

import pytest

from tests.support.sample_parts import Vflops
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.run.validate import check_all, framework_warnings
from vflops.workloads.contract.run_settings import load, profile


def submitted(*assignments: str) -> Settings:
    """Return the settings of a run on SLURM."""
    return load(profile("tiny", ["image-classification"]), None, ["launch.on=slurm", *assignments])


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (
            ("train.framework=tensorflow", "launch.gpus_per_rank=1"),
            "TensorFlow is offered on CPUs, not on cuda: it was never",
        ),
        (
            ("train.framework=mindspore", "train.device=npu"),
            "MindSpore is offered on CPUs, not on npu: it was never tested there",
        ),
        (
            ("train.framework=jax", "launch.gpus_per_rank=1", "train.ranks=2"),
            "JAX is offered on an accelerator with one rank, not with 2",
        ),
        (
            ("train.framework=jax", "train.device=cuda:0", "train.ranks=2"),
            "JAX is offered on an accelerator with one rank, not with 2",
        ),
        (
            ("train.framework=tensorflow", "train.ranks=2", "launch.ranks_per_node=1"),
            "TensorFlow is offered with all ranks of a model on one node, not with 2 ranks and 1",
        ),
        (
            ("train.framework=mindspore", "train.ranks=4", "launch.ranks_per_node=2"),
            "MindSpore is offered with all ranks of a model on one node, not with 4 ranks and 2",
        ),
    ],
)
def test_accelerators_that_are_not_offered_are_refused(
    assignments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check_all(submitted(*assignments), here=False)
    assert caught.value.message.startswith(said)
    assert "--framework pytorch" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "assignments",
    [
        ("train.framework=jax", "launch.gpus_per_rank=1"),
        ("train.framework=jax", "train.ranks=2"),
        ("train.framework=tensorflow", "launch.gpus_per_rank=1", "train.device=cpu"),
        ("launch.gpus_per_rank=1", "train.ranks=2"),
        ("train.ranks=2", "launch.ranks_per_node=1"),
        ("train.framework=tensorflow", "train.ranks=2", "launch.ranks_per_node=2"),
    ],
)
def test_those_that_are_offered_pass(assignments: tuple[str, ...]) -> None:
    check_all(submitted(*assignments), here=False)


def test_a_framework_that_is_missing_here_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes may have it: their environment may be another one, or a container."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert framework_warnings(submitted("train.framework=tensorflow")) == [
        "TensorFlow is not installed here; the jobs will fail if it is not on the nodes"
    ]
    assert framework_warnings(submitted()) == []
    assert framework_warnings(submitted("launch.on=local", "train.framework=tensorflow")) == []


def test_plan_refuses_what_run_would(vflops: Vflops) -> None:
    words = ["plan", "image-classification", "--profile", "tiny", "--on", "slurm"]
    words += ["--nodes", "2", "--slots", "1", "--framework", "tensorflow"]
    done = vflops(*words, "--set", "launch.gpus_per_rank=1")
    assert done.returncode == 2
    assert "TensorFlow is offered on CPUs, not on cuda" in " ".join(done.stderr.split())
