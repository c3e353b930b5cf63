"""TensorFlow in the real loop: the same samples, losses and checkpoints as with PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.framework_training import (
    parts_agree,
    pass_between,
    trained,
    two_ranks_agree,
    two_ranks_in_fp16_agree,
)
from vflops.models.resnet import ResNet
from vflops.record.formats.job_events import FrameworkCounted
from vflops.record.log.events import Log
from vflops.testing.backends import BackendConformance, BackendPair
from vflops.testing.half_backends import HalfPrecisionConformance
from vflops.train.backends.array_backend import Recipe
from vflops.train.backends.tensorflow_backend import TensorFlowBackend
from vflops.workloads.contract.classifier import Arrays, Classifier

pytestmark = pytest.mark.frameworks
pytest.importorskip("tensorflow", reason="pip install 'vflops[tensorflow]'")

SETTINGS: tuple[str, ...] = ()
DOUBLE = True
AGREE = 1e-9


@pytest.fixture(scope="module")
def torch_log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    return trained(tmp_path_factory.mktemp("torch"), "pytorch", *SETTINGS, double=DOUBLE)


def test_losses_agree_also_after_a_change_of_framework_and_tf_profiler_counts_a_step(
    torch_log: Log, tmp_path: Path
) -> None:
    """Its own from the start, PyTorch's from its checkpoint, and its own from PyTorch's."""
    parts = pass_between(tmp_path, "tensorflow", *SETTINGS, double=DOUBLE)
    parts_agree(parts, torch_log, AGREE)
    counts = [e.payload(FrameworkCounted) for e in parts[-1].events if e.kind == "framework-count"]
    assert [(count.source, count.samples) for count in counts] == [("tf.profiler", 32)]


def test_two_ranks_train_as_with_pytorch(tmp_path: Path) -> None:
    two_ranks_agree(tmp_path, "tensorflow", double=True, within=AGREE)


def test_two_ranks_train_in_fp16(tmp_path: Path) -> None:
    two_ranks_in_fp16_agree(tmp_path, "tensorflow")


def test_tf_profiler_counts_resnet_50_as_we_do() -> None:
    """Convolutions and products of both passes; also the gradient of the images, which is not
    computed, and less than 0.1 % of element-wise operations; but not batch norm."""
    classifier = Classifier((3, 4, 6, 3), 64, "imagenet", 1000, 224)
    with torch.device("meta"):
        model = ResNet(classifier.blocks, classes=1000, channels=3, width=64, stem="imagenet")
    weights = {n: torch.zeros(t.shape).numpy() for n, t in model.state_dict().items()}
    backend = TensorFlowBackend(classifier, Recipe(), weights)
    counted = backend.own_count([(torch.zeros(1, 3, 224, 224), torch.zeros(1, dtype=torch.int64))])
    assert counted is not None
    forward = 8_178_368_512  # of convolutions and the last layer, by hand
    assert 3 * forward < counted.flops < 3 * forward * 1.001


class TestConformance(BackendConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> TensorFlowBackend:
        return TensorFlowBackend(classifier, recipe, weights)

    def test_it_knows_the_error_of_memory_that_ran_out(self, pair: BackendPair) -> None:
        """A tensor of 16 TB; a process with little memory would rather be aborted."""
        backend = pair.backend
        assert isinstance(backend, TensorFlowBackend)
        with pytest.raises(Exception, match="OOM when allocating tensor") as caught:
            backend._tf.fill([1 << 42], np.float32(1))
        assert backend.is_out_of_memory(caught.value)
        with pytest.raises(Exception, match="ndims must be") as other:
            backend._tf.linalg.matmul([1.0], [1.0])
        assert not backend.is_out_of_memory(other.value)


class TestHalfPrecisions(HalfPrecisionConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> TensorFlowBackend:
        return TensorFlowBackend(classifier, recipe, weights)
