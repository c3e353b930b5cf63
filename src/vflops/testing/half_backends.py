"""Conformance tests for backends in 16 bits: mixed precision with bf16, or fp16 and loss scaling.

Subclass ``HalfPrecisionConformance`` and build the backend, as with ``BackendConformance``. The
reference is PyTorch in float64, so that only the backend rounds. The bounds follow from the unit
roundoff u of the operands, 2⁻⁸ for bf16 and 2⁻¹¹ for fp16:

- R roundings lie between an image and its scores. Errors of independent sign grow as a random walk,
  so a score is known to ε = √R·u of the largest one. Batch norm gives each layer the same scale:
  errors are not amplified.
- A loss changes by at most twice the error of a score: the logarithm of a softmax is a score minus
  a mean of scores.
- Inputs of ReLUs are about normal with deviation 1 and error ε, so a share of ε/π changes its sign.
  Half of the gates are open, so each layer of gates changes a gradient by √(2ε/π) of its length,
  and L independent layers by √(2Lε/π).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vflops.testing.backends import TorchReference
from vflops.train.backends.array_backend import ArrayBackend, Recipe
from vflops.train.optimizers import set_learning_rate
from vflops.train.precision import Precision
from vflops.workloads.contract.classifier import COUNTER, RUNNING, Arrays, Classifier
from vflops.workloads.contract.initial_weights import initial_weights
from vflops.workloads.contract.workload import Inputs

_ROUNDOFF = {"mixed-bf16": 2.0**-8, "mixed-fp16": 2.0**-11}
_BATCH = 32
_RATE = 1e-3
"""Most updates at this rate are less than the distance of two bf16 numbers: weights that were kept
in 16 bits would not change."""


def half_error(blocks: int, precision: str) -> float:
    """Return ε, the error of scores relative to the largest one, for a network of ``blocks``."""
    # Image, weight, product and norm of the stem; weight, product and norm of three convolutions
    # and a sum in each block; mean, and weight, bias and product at the end.
    roundings = 4 + 10 * blocks + 4
    return math.sqrt(roundings) * _ROUNDOFF[precision]


def half_gradient_error(blocks: int, precision: str) -> float:
    """Return the error of a gradient relative to its length."""
    return math.sqrt(2 * (1 + 3 * blocks) * half_error(blocks, precision) / math.pi)


class HalfPrecisionConformance:
    """Tests of the precisions of 16 bits that a backend offers."""

    half_precisions: ClassVar[tuple[str, ...]] = ("mixed-bf16", "mixed-fp16")
    device: ClassVar[str] = "cpu"

    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> ArrayBackend:
        """Return the backend under test."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def pairs(cls) -> dict[str, HalfPair]:
        """Backends by precision, built once because frameworks compile for seconds."""
        return {}

    @pytest.fixture(scope="class", params=sorted(_ROUNDOFF))
    @classmethod
    def half(cls, request: pytest.FixtureRequest, pairs: dict[str, HalfPair]) -> HalfPair:
        """A backend in 16 bits and the reference in float64, after three steps of both."""
        pair = cls()._pair(pairs, request.param)
        pair.train(3)
        return pair

    @pytest.fixture
    def scaled(self, pairs: dict[str, HalfPair]) -> HalfPair:
        """A backend in fp16 before the first step."""
        return self._pair(pairs, "mixed-fp16")

    def _pair(self, pairs: dict[str, HalfPair], precision: str) -> HalfPair:
        if precision not in self.half_precisions:
            pytest.skip(f"the backend has no {precision}")
        if precision not in pairs:
            pairs[precision] = HalfPair(self, precision)
        pairs[precision].restart()
        return pairs[precision]

    def test_losses_are_within_rounding(self, half: HalfPair) -> None:
        """Those of three steps: so few do not amplify rounding."""
        bound = 2 * half.error * half.largest_score
        for loss, expected in half.losses:
            assert abs(loss - expected) < bound

    def test_updates_are_within_rounding(self, half: HalfPair) -> None:
        """The change of all weights: one that was lost or doubled would differ by 1."""
        ours, theirs = half.updates()
        distance = float((ours - theirs).norm() / theirs.norm())
        assert distance < half.gradient_error

    def test_statistics_are_within_rounding(self, half: HalfPair) -> None:
        """Running statistics are kept in fp32, and are means over rounded numbers."""
        expected, found = half.trained
        for name, tensor in expected.items():
            if name.endswith(RUNNING):
                scale = max(1.0, float(tensor.abs().max()))
                assert float((found[name] - tensor).abs().max()) < half.error * scale, name

    def test_weights_and_momentum_are_fp32(self, half: HalfPair) -> None:
        """Checkpoints have the same types as those of PyTorch."""
        state = half.backend.collect()
        assert state is not None
        momenta = [tensor for kept in state["optimizer"].values() for tensor in kept.values()]
        weights = [t for name, t in state["model"].items() if not name.endswith(COUNTER)]
        assert {tensor.dtype for tensor in (*weights, *momenta)} == {torch.float32}

    def test_an_overflow_skips_the_step_as_gradscaler_does(self, scaled: HalfPair) -> None:
        """Scales rise until gradients overflow, fall, and rise again, as in PyTorch.

        Where a gradient overflows depends on the kernels, so that PyTorch is told of each overflow.
        """
        pair, interval = scaled, 2
        pair.start_scale(2.0**24, growth_interval=interval)
        scale, steps, scales = torch.tensor(2.0**24), torch.tensor(0, dtype=torch.int32), [2.0**24]
        for batch in pair.some(14):
            before = pair.weights()
            expected, loss = pair.scaled_step(batch)
            if len(scales) == 1:  # later, training has multiplied the roundings
                assert abs(loss - expected) < 2 * pair.error * pair.largest_score
                assert pair.backend.read_scale() == pair.scaler.state_dict()
            is_skipped = torch.equal(before, pair.weights())
            torch._amp_update_scale_(
                scale, steps, torch.tensor(float(is_skipped)), 2.0, 0.5, interval
            )
            state = pair.backend.read_scale()
            assert (state["scale"], state["_growth_tracker"]) == (scale.item(), steps.item())
            scales.append(state["scale"])
        changes = [b / a for a, b in pairwise(scales)]
        assert {0.5, 1.0, 2.0} <= set(changes), scales

    def test_a_scale_is_restored_from_a_state_of_pytorch(self, scaled: HalfPair) -> None:
        """And PyTorch restores it from the backend; a state without one leaves it."""
        pair = scaled
        scaler = pair.scaler.state_dict() | {"scale": 512.0, "_growth_tracker": 7}
        state = pair.backend.collect()
        assert state is not None and state["scaler"] == pair.scaler.state_dict()
        pair.backend.restore(state | {"scaler": scaler})
        assert pair.backend.read_scale() == scaler
        pair.scaler.load_state_dict(pair.backend.read_scale())
        assert pair.scaler.state_dict() == scaler
        pair.backend.restore(state | {"scaler": {}})
        assert pair.backend.read_scale() == scaler


class HalfPair:
    """A backend in 16 bits, and PyTorch in float64 or with autocast and GradScaler."""

    def __init__(self, owner: HalfPrecisionConformance, precision: str) -> None:
        classifier = self._classifier = Classifier((1, 1, 1), 8, "small", 4, 16, 0.1)
        recipe = Recipe(nesterov=True, weight_decay=0.01, precision=precision, device=owner.device)
        self._weights = initial_weights(classifier, seed=1)
        self._reference = TorchReference(classifier, recipe, self._weights, torch.float64)
        self.backend = owner.build(classifier, recipe, self._weights)
        self._precision = Precision.named(precision, owner.device)
        self.scaler = self._precision.scaler()
        blocks = sum(classifier.blocks)
        self.error = half_error(blocks, precision)
        self.gradient_error = half_gradient_error(blocks, precision)
        start = self.backend.collect()
        assert start is not None
        self._start = start
        self.losses: list[tuple[float, float]] = []
        self.largest_score = 1.0
        self.trained = self._states()
        """The models of reference and backend after ``train``, in float64."""

    def restart(self) -> None:
        """Return to the state before the first step, with a new scaler."""
        self.scaler = self._precision.scaler()
        self.backend.restore(self._start)
        self._reference.model.double()
        self._reference.restore(self._start)

    def train(self, steps: int) -> None:
        """Take steps with both, PyTorch in float64; keep losses and states."""
        self.losses = []
        for images, labels in self.some(steps):
            exact = images.double()
            with torch.no_grad():
                scores = self._reference.model.eval()(exact)
            self.largest_score = max(self.largest_score, float(scores.abs().max()))
            loss = float(self.backend.take_step([(images, labels)], _RATE))
            self.losses.append((loss, self._reference.take_step([(exact, labels)], _RATE)))
        self.trained = self._states()

    def some(self, count: int) -> Iterator[Inputs]:
        """Yield batches of random images and labels."""
        random = torch.Generator().manual_seed(0)
        side = self._classifier.size
        for _ in range(count):
            images = torch.randn((_BATCH, 3, side, side), generator=random)
            labels = torch.randint(0, self._classifier.classes, (_BATCH,), generator=random)
            yield images.to(self._reference.device), labels.to(self._reference.device)

    def _states(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the models of reference and backend as they are, in float64."""
        state = self.backend.collect()
        assert state is not None
        models: Sequence[dict[str, Any]] = (self._reference.collect()["model"], state["model"])
        expected, found = ({n: t.double() for n, t in model.items()} for model in models)
        return expected, found

    def weights(self) -> Tensor:
        """Return all trained weights of the backend as one vector."""
        return self._flat(self._states()[1])

    def updates(self) -> tuple[Tensor, Tensor]:
        """Return how far the steps moved the weights of the backend and of the reference."""
        start = {n: torch.from_numpy(a).double() for n, a in self._weights.items()}
        expected, found = self.trained
        first = self._flat(start)
        return self._flat(found) - first, self._flat(expected) - first

    def start_scale(self, scale: float, growth_interval: int) -> None:
        """Have both scale the loss from here on, PyTorch with its weights in fp32."""
        self._reference.model.float()
        self.scaler.load_state_dict(
            self.scaler.state_dict() | {"scale": scale, "growth_interval": growth_interval}
        )
        self.backend.restore_scale(self.scaler.state_dict())

    def scaled_step(self, batch: Inputs) -> tuple[float, float]:
        """Take a step with autocast and GradScaler, and one of the backend; return the losses."""
        images, labels = batch
        model, optimizer = self._reference.model, self._reference.optimizer
        set_learning_rate(optimizer, _RATE)
        optimizer.zero_grad()
        with self._precision.autocast():
            scores = model.train()(images)
            smoothing = self._classifier.label_smoothing
            loss = cross_entropy(scores, labels, label_smoothing=smoothing)
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
        return loss.item(), float(self.backend.take_step([batch], _RATE))

    @staticmethod
    def _flat(model: dict[str, Tensor]) -> Tensor:
        return torch.cat([t.flatten() for n, t in sorted(model.items()) if _is_trained(n)])


def _is_trained(name: str) -> bool:
    return not name.endswith((*RUNNING, COUNTER))
