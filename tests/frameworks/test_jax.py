"""JAX computes what PyTorch does."""

from __future__ import annotations

import pytest

from vflops.testing.backends import BackendConformance
from vflops.testing.half_backends import HalfPrecisionConformance
from vflops.train.backends.array_backend import Recipe
from vflops.train.backends.jax_backend import JaxBackend
from vflops.workloads.contract.classifier import Arrays, Classifier

pytestmark = pytest.mark.frameworks
pytest.importorskip("jax", reason="pip install 'vflops[jax]'")


class TestConformance(BackendConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> JaxBackend:
        return JaxBackend(classifier, recipe, weights)


class TestHalfPrecisions(HalfPrecisionConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> JaxBackend:
        return JaxBackend(classifier, recipe, weights)
