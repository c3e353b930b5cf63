"""NCCL's all-reduce as a ring or a tree: what is set, recorded and refused.

There are no two accelerators here, so NCCL itself is not run.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from vflops.config.training import TrainSettings
from vflops.errors import UsageError
from vflops.run.validate import check
from vflops.train.communication.exchange import algorithm
from vflops.train.communication.fixed_algorithm import fix_algorithm
from vflops.train.parallel.factory import parallel_plan
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import profile


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "")  # so that the value is restored
    monkeypatch.delenv("NCCL_ALGO")


def settings(**changes: Any) -> TrainSettings:
    return TrainSettings(**{"epochs": 1, "batch": 8, "learning_rate": 0.1, "ranks": 2, **changes})


@pytest.mark.parametrize("name", ["ring", "tree"])
def test_the_algorithm_is_set_and_recorded(name: Any) -> None:
    fix_algorithm(name, "nccl")
    assert os.environ["NCCL_ALGO"] == f"allreduce:{name}"
    assert algorithm("nccl", {"all-reduce"}) == (f"NCCL_ALGO=allreduce:{name}", None)
    fix_algorithm(name, "nccl")  # a search sets it again for each candidate


def test_the_library_chooses_by_default() -> None:
    fix_algorithm("auto", "nccl")
    fix_algorithm("auto", "gloo")
    assert "NCCL_ALGO" not in os.environ
    assert algorithm("nccl", {"all-reduce"})[0] is None


def test_a_contrary_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    with pytest.raises(UsageError, match=r"algorithm is tree, but NCCL_ALGO is Ring in the"):
        fix_algorithm("tree", "nccl")
    assert os.environ["NCCL_ALGO"] == "Ring"
    fix_algorithm("auto", "nccl")


@pytest.mark.parametrize("backend", ["gloo", "xccl"])
def test_other_libraries_have_no_choice(backend: str) -> None:
    with pytest.raises(UsageError, match=f"communicate by {backend}, which has no such choice"):
        fix_algorithm("tree", backend)
    assert "NCCL_ALGO" not in os.environ


@pytest.mark.parametrize(
    "shared",
    [
        {},
        {"ranks": 4, "parallel": {"mode": "mixed", "mesh": (2, 2)}, "accumulate": 4},
        {"ranks": 4, "parallel": {"mode": "mixed", "mesh": (2, 2), "within": "model"}},
        {
            "ranks": 4,
            "parallel": {"mode": "mixed", "mesh": (2, 2), "within": "model", "split": "tensor"},
        },
    ],
)
def test_a_rank_without_nccl_does_not_start(shared: dict[str, Any]) -> None:
    train = settings(communication={"algorithm": "tree"}, **shared)
    with pytest.raises(UsageError, match="communicate by gloo"):
        parallel_plan(0, train.ranks, torch.device("cpu"), "file:///nonexistent", train)


def test_a_machine_without_nccl_refuses_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    spec = workload("image-classification")
    section = spec.profile("tiny")
    train = section.train.model_copy(update=dict(settings(communication={"algorithm": "ring"})))
    with pytest.raises(UsageError, match="algorithm is ring, but the ranks communicate by gloo"):
        check(profile("tiny", [spec.name]), spec, section.model_copy(update={"train": train}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"device": "cpu"}, "is a choice of NCCL, but ranks on a cpu communicate by gloo"),
        ({"ranks": 1}, "there is only one copy: use --ranks 2 with parallel.mode data"),
        ({"parallel": {"mode": "sharded"}}, "there is only one copy"),
        ({"ranks": 4, "communication": {"mode": "torus"}}, "not to mode torus in fp32"),
        ({"communication": {"precision": "int8"}}, "not to mode all-reduce in int8"),
    ],
)
def test_an_algorithm_without_effect_is_refused(changes: dict[str, Any], words: str) -> None:
    communication = {"algorithm": "tree", **changes.pop("communication", {})}
    with pytest.raises(ValidationError, match=words):
        settings(communication=communication, **changes)
    assert settings(communication={"algorithm": "tree"}).communication.algorithm == "tree"
