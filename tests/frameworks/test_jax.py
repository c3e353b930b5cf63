"""JAX computes what PyTorch does."""

from __future__ import annotations

import re

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from vflops.testing.backends import BackendConformance, BackendPair
from vflops.testing.half_backends import HalfPair, HalfPrecisionConformance
from vflops.train.backends.array_backend import Recipe
from vflops.train.backends.jax_backend import JaxBackend
from vflops.workloads.contract.classifier import Arrays, Classifier

pytestmark = pytest.mark.frameworks
pytest.importorskip("jax", reason="pip install 'vflops[jax]'")


class TestConformance(BackendConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> JaxBackend:
        return JaxBackend(classifier, recipe, weights)

    def test_xla_counts_what_we_count_and_element_wise_operations(self, pair: BackendPair) -> None:
        batch = pair.some(1)
        counted = pair.backend.own_count(batch)
        with FlopCounterMode(display=False) as ours:
            pair.reference.take_step(batch, 0.0)
        products = ours.get_total_flops()
        # Norms, ReLU and the update are a small part even of this narrow network.
        assert counted is not None and products < counted.flops < 1.5 * products


class TestHalfPrecisions(HalfPrecisionConformance):
    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> JaxBackend:
        return JaxBackend(classifier, recipe, weights)

    def test_it_says_whether_xla_computes_in_fp32(self, pairs: dict[str, HalfPair]) -> None:
        """As the program of its own step shows."""
        backend = self._pair(pairs, "mixed-bf16").backend
        images = np.zeros((32, 16, 16, 3), np.float32)
        labels, rate = np.zeros(32, np.int32), np.float32(0)
        assert isinstance(backend, JaxBackend)
        step = backend._take_step.lower(backend._state, (images,), (labels,), rate)
        types = set(re.findall(r"= (\w+)\[[^=\n]*\bconvolution\(", step.compile().as_text()))
        assert types in ({"f32"}, {"bf16"})
        note = "emulated: XLA computes convolutions in fp32 on this CPU"
        assert backend.emulated == (note if types == {"f32"} else None)
