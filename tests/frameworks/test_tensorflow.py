"""TensorFlow in the real loop: the same samples, losses and checkpoints as with PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.framework_training import agree, resumed, trained
from vflops.record.log.events import Log
from vflops.testing.backends import BackendConformance
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


def test_losses_agree(torch_log: Log, tmp_path: Path) -> None:
    agree(trained(tmp_path, "tensorflow", *SETTINGS, double=DOUBLE), torch_log, AGREE)


@pytest.mark.parametrize(
    ("first", "second"), [("tensorflow", "pytorch"), ("pytorch", "tensorflow")]
)
def test_a_checkpoint_of_one_is_resumed_by_another(
    first: str, second: str, torch_log: Log, tmp_path: Path
) -> None:
    agree(resumed(tmp_path, first, second, *SETTINGS, double=DOUBLE), torch_log, AGREE)


class TestConformance(BackendConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> TensorFlowBackend:
        return TensorFlowBackend(classifier, recipe, weights)
