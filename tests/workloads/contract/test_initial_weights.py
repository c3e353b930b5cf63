"""Initial weights: one draw for all frameworks, array by array."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from vflops.models.fused_resnet import FusedResNet
from vflops.models.resnet import ResNet, Stem
from vflops.workloads.contract.classifier import COUNTER, Arrays, Classifier
from vflops.workloads.contract.initial_weights import initial_weights

SMALL = Classifier((1, 1, 1), 8, "small", 4, 16)


def same(one: Arrays, other: Arrays) -> bool:
    return list(one) == list(other) and all(
        one[name].tobytes() == other[name].tobytes() for name in one
    )


@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_names_shapes_and_types_are_those_of_the_network(stem: Stem) -> None:
    arrays = initial_weights(Classifier((2, 1, 3), 8, stem, 10, 32), 1)
    expected = ResNet((2, 1, 3), width=8, stem=stem, classes=10).state_dict()
    found = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    assert found == {
        name: (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in expected.items()
    }


def test_the_fused_network_takes_them() -> None:
    arrays = initial_weights(Classifier((1, 1, 1, 1), 64, "imagenet", 10, 64), 1)
    model = FusedResNet((1, 1, 1, 1), classes=10)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    for name, tensor in model.state_dict().items():
        assert tensor.numpy().tobytes() == arrays[name].tobytes(), name


def test_arrays_are_distributed_as_pytorch_draws_them() -> None:
    """A mean of n samples is within 5 σ/√n; a sample deviation within 5 σ/√(2n)."""
    classifier = Classifier((3, 4, 6, 3), 64, "imagenet", 1000, 224)
    for name, array in initial_weights(classifier, 1).items():
        n, values = array.size, array.astype(np.float64)
        if array.ndim == 4:
            filters, _, height, width = array.shape
            deviation = math.sqrt(2 / (filters * height * width))
            assert abs(values.mean()) < 5 * deviation / math.sqrt(n), name
            assert abs(values.std() - deviation) < 5 * deviation / math.sqrt(2 * n), name
            outside = (abs(values) > 2 * deviation).mean()
            share = math.erfc(math.sqrt(2))  # of a normal distribution
            assert abs(outside - share) < 5 * math.sqrt(share / n), name
        elif name.startswith("classifier"):
            limit = 1 / math.sqrt(2048)
            assert abs(values).max() <= np.float32(limit), name
            deviation = limit / math.sqrt(3)
            assert abs(values.mean()) < 5 * deviation / math.sqrt(n), name
            assert abs(values.std() - deviation) < 5 * deviation / math.sqrt(2 * n), name
        else:
            kind = name.rpartition(".")[2]
            expected = {"weight": 1, "bias": 0, "running_mean": 0, "running_var": 1, COUNTER: 0}
            assert (values == expected[kind]).all(), name


def test_a_seed_always_gives_the_same_bytes_and_another_seed_others() -> None:
    assert same(initial_weights(SMALL, 1), initial_weights(SMALL, 1))
    one, other = initial_weights(SMALL, 1), initial_weights(SMALL, 2)
    drawn = [name for name in one if one[name].ndim > 1 or name.startswith("classifier")]
    assert all((one[name] != other[name]).mean() > 0.9 for name in drawn)


def test_arrays_are_unrelated() -> None:
    """Two layers of the same shape, and two seeds, have no common part."""
    one, other = (initial_weights(replace(SMALL, blocks=(3, 1)), seed) for seed in (1, 2))
    rows = [
        arrays[f"stages.0.{block}.conv2.weight"].ravel()
        for arrays in (one, other)
        for block in range(3)
    ]
    correlations = np.corrcoef(rows) - np.eye(len(rows))
    assert abs(correlations).max() < 5 / math.sqrt(rows[0].size)


def test_an_array_does_not_depend_on_other_layers() -> None:
    """More blocks and classes leave the arrays of the others as they are."""
    one = initial_weights(SMALL, 1)
    other = initial_weights(replace(SMALL, blocks=(2, 1, 1), classes=7), 1)
    common = [name for name in one if one[name].shape == other[name].shape]
    assert "stem.0.weight" in common and "stages.2.0.conv2.weight" in common
    assert all(one[name].tobytes() == other[name].tobytes() for name in common)


def test_the_draws_stay_the_same() -> None:
    """Logs commit to the state before the first step, and may be audited years later."""
    arrays = initial_weights(SMALL, 1)
    normal, uniform = arrays["stem.0.weight"].ravel(), arrays["classifier.weight"].ravel()
    assert normal[:3].tolist() == [
        -0.029148554429411888,
        -0.051458798348903656,
        0.012528219260275364,
    ]
    assert uniform[:3].tolist() == [0.06780747324228287, -0.049668390303850174, -0.020070755854249]
