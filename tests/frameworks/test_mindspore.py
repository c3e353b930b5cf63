"""MindSpore in the real loop: the same samples, losses and checkpoints as with PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.support.framework_training import (
    SLOWLY,
    parts_agree,
    pass_between,
    runs_out_of_memory,
    trained,
    two_ranks_agree,
)
from vflops.record.formats.job_events import FrameworkCounted
from vflops.record.log.events import Log
from vflops.testing.backends import BackendConformance, BackendPair
from vflops.train.backends.array_backend import Recipe
from vflops.train.backends.mindspore_backend import MindSporeBackend
from vflops.workloads.contract.classifier import Arrays, Classifier

pytestmark = pytest.mark.frameworks
pytest.importorskip("mindspore", reason="pip install 'vflops[mindspore]'")

SETTINGS: tuple[str, ...] = (SLOWLY,)
DOUBLE = False
AGREE = 1e-4


@pytest.fixture(scope="module")
def torch_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return trained(tmp_path_factory.mktemp("torch"), "pytorch", *SETTINGS, double=DOUBLE)


def test_losses_agree_also_after_a_change_of_framework_and_mindspore_counts_a_step(
    torch_log: Log, tmp_path: Path
) -> None:
    """Its own from the start, PyTorch's from its checkpoint, and its own from PyTorch's."""
    parts = pass_between(tmp_path, "mindspore", *SETTINGS, double=DOUBLE)
    parts_agree(parts, torch_log, AGREE)
    counts = [e.payload(FrameworkCounted) for e in parts[-1].events if e.kind == "framework-count"]
    assert [(count.source, count.samples) for count in counts] == [("MindSpore", 32)]


def test_running_out_of_memory_is_a_clear_error(tmp_path: Path) -> None:
    runs_out_of_memory(tmp_path, "mindspore", memory_mb=1024)


def test_two_ranks_train_as_with_pytorch(tmp_path: Path) -> None:
    two_ranks_agree(tmp_path, "mindspore", *SETTINGS, double=DOUBLE, within=AGREE)


class TestConformance(BackendConformance):
    precisions = ("fp32",)

    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> MindSporeBackend:
        return MindSporeBackend(classifier, recipe, weights)

    def test_it_counts_the_operations_that_we_count(self, pair: BackendPair) -> None:
        """Those of convolutions and matrix products in both passes: three times the forward pass,
        less the gradient of the images."""
        batch = pair.some(1)
        before = pair.collect()["model"]
        counted = pair.backend.own_count(batch)
        with FlopCounterMode(display=False) as ours:
            pair.reference.take_step(batch, 0.0)
        assert counted is not None and counted.flops == ours.get_total_flops()
        after = pair.collect()["model"]
        assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


@pytest.mark.parametrize(
    ("change", "words"), [({"precision": "fp64"}, "fp64"), ({"device": "cuda"}, "cuda")]
)
def test_what_its_kernels_do_not_offer_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        MindSporeBackend(Classifier((1,), 8, "small", 4, 16), Recipe(**change), {})
