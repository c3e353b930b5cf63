"""Conformance tests for backends: a framework must train as a plain loop of PyTorch does.

Subclass ``BackendConformance`` and build the backend::

    class TestMine(BackendConformance):
        def build(self, classifier, recipe, weights):
            return MyBackend(classifier, recipe, weights)

The reference is a loop with ``vflops.models.resnet`` and an optimizer of torch. The backend of
PyTorch inherits the same tests. Precisions of 16 bits have tests of their own, in
``vflops.testing.half_backends``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from vflops.models.resnet import ResNet, Stem
from vflops.train.backends.array_backend import MOMENTUM, Recipe
from vflops.train.backends.backend import Backend
from vflops.train.optimizers import build as build_optimizer
from vflops.train.optimizers import parameter_groups, set_learning_rate
from vflops.train.precision import Precision
from vflops.workloads.contract.classifier import COUNTER, RUNNING, Arrays, Classifier
from vflops.workloads.contract.initial_weights import initial_weights
from vflops.workloads.contract.workload import Inputs

_BATCH = 32
_SIZES: dict[Stem, int] = {"small": 16, "imagenet": 32}


@dataclass(frozen=True)
class _Bounds:
    """How long the same steps can be compared, and how closely."""

    dtype: torch.dtype
    losses: float
    loss_rate: float
    """The learning rate of the comparison of losses."""
    rate: float
    """The learning rate of the comparison of states, after a few steps."""
    weights: float
    statistics: float
    momentum: float


_BOUNDS = {
    "fp64": _Bounds(
        torch.float64,
        losses=1e-9,
        loss_rate=0.125,  # exact in fp32, in which torch's fused kernels read it
        rate=0.125,
        weights=1e-9,
        statistics=1e-9,
        momentum=1e-9,
    ),
    # Rounding decides on which side of zero some inputs of ReLUs are. Each of these jumps changes
    # the gradient, so two runs part by an amount in proportion to the learning rate: PyTorch in
    # fp32 is 2e-4 from itself in fp64 after 20 steps at 1e-3. At 1e-4 that leaves a factor of 5.
    # The bounds of states are far below what an error leaves after three steps: 3e-3 in the weights
    # if Nesterov's momentum is left out, 1e-3 without weight decay, 3e-3 in the statistics if the
    # variance is biased. A correct backend leaves 1e-6.
    "fp32": _Bounds(
        torch.float32,
        losses=1e-4,
        loss_rate=1e-4,
        rate=0.01,
        weights=1e-4,
        statistics=1e-5,
        momentum=2e-3,
    ),
}


class BackendConformance:
    """Tests that run on a CPU within a minute, or on an accelerator."""

    precisions: ClassVar[tuple[str, ...]] = ("fp64", "fp32")
    """Those to test; without ``fp64`` the bounds are wide."""
    threads: ClassVar[int] = 1
    device: ClassVar[str] = "cpu"

    def build(self, classifier: Classifier, recipe: Recipe, weights: Arrays) -> Backend:
        """Return the backend under test."""
        raise NotImplementedError

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def exact_products(cls) -> Iterator[None]:
        """Products in fp32 that are not rounded to TF32, also on an accelerator."""
        with Precision.named("fp32", cls.device).settings():
            yield

    @pytest.fixture(scope="class", params=sorted(_BOUNDS, reverse=True))
    @classmethod
    def built(cls, request: pytest.FixtureRequest) -> BackendPair:
        """A backend and the reference, built once because frameworks compile for seconds."""
        if request.param not in cls.precisions:
            pytest.skip(f"the backend has no {request.param}")
        return cls()._pair(request.param)

    @pytest.fixture
    def pair(self, built: BackendPair) -> BackendPair:
        """The backend and the reference before the first step."""
        built.restart()
        return built

    def test_it_starts_with_the_given_weights(self, pair: BackendPair) -> None:
        """Names, shapes, types and values are those of PyTorch; there is no momentum yet."""
        expected = pair.reference.model.state_dict()
        model = pair.first["model"]
        assert sorted(model) == sorted(expected)
        for name, tensor in expected.items():
            assert (model[name].shape, model[name].dtype) == (tensor.shape, tensor.dtype), name
            assert torch.equal(model[name], tensor.cpu()), name
        assert not any(state[MOMENTUM].any() for state in pair.first["optimizer"].values())
        assert pair.first["scaler"] == {}
        assert pair.backend.parameters == sum(p.numel() for p in pair.reference.model.parameters())

    def test_it_says_what_it_is(self, pair: BackendPair) -> None:
        """The record of a run names the framework and its version."""
        assert pair.backend.framework and pair.backend.version
        assert pair.backend.device.type == self.device

    def test_the_losses_of_20_steps_agree(self, pair: BackendPair) -> None:
        """The loss of a step is that before its update."""
        rate, bound = pair.bounds.loss_rate, pair.bounds.losses
        for step, batch in zip(range(20), pair.batches(), strict=False):
            expected, loss = pair.step([batch], rate)
            assert abs(loss - expected) < bound, f"step {step}: {loss} instead of {expected}"

    def test_the_states_agree_after_steps(self, pair: BackendPair) -> None:
        """Parameters, running statistics, counters and momentum."""
        pair.train(3)
        pair.compare_states()
        counters = [int(t) for n, t in pair.collect()["model"].items() if n.endswith(COUNTER)]
        assert set(counters) == {3}

    def test_it_resumes_from_a_state_of_pytorch(self, pair: BackendPair) -> None:
        """A run can change the framework at a checkpoint."""
        for batch in pair.some(3):
            pair.reference.take_step([batch], pair.bounds.rate)
        pair.backend.restore(pair.reference.collect())
        pair.compare_states()
        pair.train(3, seed=1)
        pair.compare_states()

    def test_pytorch_resumes_from_its_state(self, pair: BackendPair) -> None:
        """Also in the other direction."""
        for batch in pair.some(3):
            pair.backend.take_step([batch], pair.bounds.rate)
        pair.reference.restore(pair.collect())
        pair.train(3, seed=1)
        pair.compare_states()

    def test_predictions_are_probabilities_that_agree(self, pair: BackendPair) -> None:
        """They use the running statistics, and leave them as they are."""
        pair.train(3)
        before = pair.collect()["model"]
        (images, labels), *_ = pair.some(1)
        predicted = pair.predict(images, labels)
        assert predicted.device.type == self.device
        predicted = predicted.cpu()
        assert predicted.shape == (_BATCH, pair.classifier.classes)
        assert predicted.min() >= 0
        torch.testing.assert_close(predicted.sum(1), torch.ones(_BATCH), check_dtype=False)
        expected = pair.reference.predict(images)
        assert _distance(predicted, expected.cpu()) < max(pair.bounds.weights, 1e-6)  # float32
        for name, tensor in pair.collect()["model"].items():
            assert torch.equal(tensor, before[name]), name

    def test_parts_have_the_mean_gradient(self, pair: BackendPair) -> None:
        """As with gradient accumulation: each part has its own batch statistics, in turn."""
        for seed in range(2):
            expected, loss = pair.step(pair.some(2, seed), pair.bounds.rate)
            assert abs(loss - expected) < pair.bounds.losses
        pair.compare_states()

    def test_a_learning_rate_of_0_leaves_the_weights(self, pair: BackendPair) -> None:
        """Only the running statistics change, and the momentum."""
        before = pair.collect()["model"]
        for batch in pair.some(2):
            pair.backend.take_step([batch], 0.0)
        for name, tensor in pair.collect()["model"].items():
            changes = name.endswith((*RUNNING, COUNTER))
            assert torch.equal(tensor, before[name]) != changes, name

    def test_its_weights_are_those_of_its_state(self, pair: BackendPair) -> None:
        """They are stored at the end of a run."""
        pair.train(1)
        weights, model = pair.backend.weights(), pair.collect()["model"]
        assert weights is not None and sorted(weights) == sorted(model)
        assert all(torch.equal(weights[name], tensor) for name, tensor in model.items())

    def test_it_perturbs_every_weight_by_a_share_of_itself(self, pair: BackendPair) -> None:
        """The same each time, and nothing else."""
        pair.train(1)
        before = pair.collect()
        perturbed = []
        for _ in range(2):
            pair.backend.restore(before)
            pair.backend.perturb(2**-10)
            perturbed.append(pair.collect())
        one, other = perturbed
        for name, old in before["model"].items():
            new = one["model"][name]
            assert torch.equal(new, other["model"][name]), name
            is_trained = not name.endswith((*RUNNING, COUNTER))
            expected = old.double().abs() * 2**-10 if is_trained else torch.zeros(old.shape)
            torch.testing.assert_close(
                (new.double() - old.double()).abs(), expected.double(), rtol=1e-3, atol=1e-12
            )
        for name, state in before["optimizer"].items():
            assert torch.equal(one["optimizer"][name][MOMENTUM], state[MOMENTUM]), name

    def test_the_same_steps_give_the_same_bits(self, pair: BackendPair) -> None:
        """If the backend says so: audits and twins rely on it."""
        if not pair.backend.deterministic:
            pytest.skip("the backend does not say that it is deterministic")
        states = []
        for _ in range(2):
            pair.restart()
            for batch in pair.some(3):
                pair.backend.take_step([batch], pair.bounds.rate)
            states.append(pair.collect())
        one, other = states
        for name, tensor in one["model"].items():
            assert torch.equal(tensor, other["model"][name]), name
        for name, kept in one["optimizer"].items():
            assert torch.equal(kept[MOMENTUM], other["optimizer"][name][MOMENTUM]), name

    def test_it_finds_a_nan(self, pair: BackendPair) -> None:
        """A run with weights that are not numbers stops."""
        assert pair.backend.is_finite()
        state = pair.collect()
        state["model"]["classifier.bias"][0] = float("nan")
        pair.backend.restore(state)
        assert not pair.backend.is_finite()

    def test_it_trains_without_nesterov_and_weight_decay(self) -> None:
        """The other branches of the update."""
        pair = self._pair(self.precisions[0], Recipe(momentum=0.8))
        pair.train(3)
        pair.compare_states()

    def test_the_stem_of_imagenet_agrees(self) -> None:
        """It has a larger convolution and max-pooling, both padded."""
        pair = self._pair(self.precisions[0], stem="imagenet")
        pair.train(3)
        pair.compare_states()

    def _pair(
        self, precision: str, recipe: Recipe | None = None, *, stem: Stem = "small"
    ) -> BackendPair:
        recipe = recipe or Recipe(nesterov=True, weight_decay=0.01)
        recipe = Recipe(
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            weight_decay=recipe.weight_decay,
            precision=precision,
            threads=self.threads,
            device=self.device,
        )
        classifier = Classifier((1, 1, 1), 8, stem, 4, _SIZES[stem], 0.1)
        weights = initial_weights(classifier, seed=1)
        reference = TorchReference(classifier, recipe, weights, _BOUNDS[precision].dtype)
        backend = self.build(classifier, recipe, weights)
        return BackendPair(classifier, backend, reference, _BOUNDS[precision])


class BackendPair:
    """A backend and the reference, which take the same steps."""

    def __init__(
        self, classifier: Classifier, backend: Backend, reference: TorchReference, bounds: _Bounds
    ) -> None:
        self.classifier, self.bounds = classifier, bounds
        self.backend, self.reference = backend, reference
        self.first = self.collect()
        """The state of the new backend."""
        self._start = reference.collect()

    def restart(self) -> None:
        """Return both to the state before the first step."""
        # Copies: an optimizer may keep and change the tensors that it is given.
        self.backend.restore(copy.deepcopy(self._start))
        self.reference.restore(copy.deepcopy(self._start))

    def collect(self) -> dict[str, Any]:
        """Return a copy of the state of the backend: the next step may change what it returns."""
        state = self.backend.collect()
        assert state is not None
        return copy.deepcopy(state)

    def predict(self, *inputs: Tensor) -> Tensor:
        """Return predictions as an evaluation asks for them."""
        with torch.no_grad(), self.backend.evaluating():
            predicted = self.backend.predict(*inputs)
        assert predicted is not None
        return predicted

    def batches(self, seed: int = 0) -> Iterator[Inputs]:
        """Yield batches of random images and labels."""
        random = torch.Generator().manual_seed(seed)
        shape = (_BATCH, self.classifier.channels, self.classifier.size, self.classifier.size)
        while True:
            images = torch.randn(shape, generator=random, dtype=torch.float64)
            labels = torch.randint(0, self.classifier.classes, (_BATCH,), generator=random)
            device = self.reference.device
            yield images.to(device, self.bounds.dtype), labels.to(device)

    def some(self, count: int, seed: int = 0) -> list[Inputs]:
        """Return batches."""
        return [batch for batch, _ in zip(self.batches(seed), range(count), strict=False)]

    def step(self, parts: Sequence[Inputs], rate: float) -> tuple[float, float]:
        """Return the losses of the reference and of the backend."""
        return self.reference.take_step(parts, rate), float(self.backend.take_step(parts, rate))

    def train(self, steps: int, seed: int = 0) -> None:
        """Take steps with both."""
        for batch in self.some(steps, seed):
            self.step([batch], self.bounds.rate)

    def compare_states(self) -> None:
        """Assert that the states agree within the bounds."""
        expected, state = self.reference.collect(), self.collect()
        assert sorted(state["model"]) == sorted(expected["model"])
        for name, tensor in expected["model"].items():
            is_statistic = name.endswith((*RUNNING, COUNTER))
            bound = self.bounds.statistics if is_statistic else self.bounds.weights
            distance = _distance(state["model"][name], tensor)
            assert distance < bound, f"{name} differs by {distance:.1e}"
        assert sorted(state["optimizer"]) == sorted(expected["optimizer"])
        for name, kept in expected["optimizer"].items():
            distance = _distance(state["optimizer"][name][MOMENTUM], kept[MOMENTUM])
            assert distance < self.bounds.momentum, f"momentum of {name} differs by {distance:.1e}"


class TorchReference:
    """The classifier in plain PyTorch."""

    def __init__(
        self, classifier: Classifier, recipe: Recipe, weights: Arrays, dtype: torch.dtype
    ) -> None:
        self._smoothing = classifier.label_smoothing
        stem: Stem = "imagenet" if classifier.stem == "imagenet" else "small"
        self.model = ResNet(
            classifier.blocks,
            classes=classifier.classes,
            channels=classifier.channels,
            width=classifier.width,
            stem=stem,
        )
        self.model.load_state_dict({n: torch.tensor(array) for n, array in weights.items()})
        self.device = torch.device(recipe.device)
        self.model.to(self.device, dtype)
        self.optimizer = build_optimizer(
            "sgd",
            parameter_groups(self.model, recipe.weight_decay),
            learning_rate=0.0,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
        )

    def take_step(self, parts: Sequence[Inputs], rate: float) -> float:
        """Update the weights and return the mean loss."""
        self.model.train()
        set_learning_rate(self.optimizer, rate)
        self.optimizer.zero_grad()
        total = 0.0
        for images, labels in parts:
            loss = cross_entropy(self.model(images), labels, label_smoothing=self._smoothing)
            loss /= len(parts)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        return total

    def predict(self, images: Tensor) -> Tensor:
        """Return class probabilities."""
        self.model.eval()
        with torch.no_grad():
            probabilities: Tensor = self.model(images).softmax(1)
        return probabilities

    def collect(self) -> dict[str, Any]:
        """Return a copy of the state, in the form of ``Backend.collect``."""
        state = self.optimizer.state
        return {
            "model": {name: _copy(tensor) for name, tensor in self.model.state_dict().items()},
            "optimizer": {
                name: {MOMENTUM: _copy(state[parameter][MOMENTUM])}
                for name, parameter in self.model.named_parameters()
                if parameter in state
            },
            "scaler": {},
        }

    def restore(self, contents: dict[str, Any]) -> None:
        """Load the state of any backend."""
        self.model.load_state_dict(contents["model"])
        self.optimizer.state.clear()
        for name, parameter in self.model.named_parameters():
            if name in contents["optimizer"]:
                momentum = contents["optimizer"][name][MOMENTUM].to(parameter, copy=True)
                self.optimizer.state[parameter][MOMENTUM] = momentum


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


def _distance(one: Tensor, other: Tensor) -> float:
    return (one.cpu().double() - other.cpu().double()).abs().max().item()
