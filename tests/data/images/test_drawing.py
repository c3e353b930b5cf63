from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vflops.data.images.drawing import MAX_CLASSES, Recipe, draw, look_of
from vflops.errors import UsageError

GOLDEN = {
    Recipe(): "8850cbba1423207e",
    Recipe(classes=1000, size=50, seed=7): "7af6ff3b44edf8ec",
    Recipe(classes=10_000, size=33, seed=3, turn=3.1): "f881a63e0ca6a33f",
}


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread: several are ten times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tensors(recipe: Recipe, split: str, count: int) -> tuple[Tensor, Tensor]:
    images, labels = draw(recipe, split, 0, count)
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 70) / 60, torch.from_numpy(
        labels
    )


def ridge_accuracy(recipe: Recipe, train: int, val: int) -> float:
    """Return the accuracy of the best ridge classifier on pixels, chosen on validation images."""
    (x, labels), (z, expected) = tensors(recipe, "train", train), tensors(recipe, "val", val)
    z, x = (part.flatten(1) - x.flatten(1).mean(0) for part in (z, x))
    target = torch.nn.functional.one_hot(labels).float() - 1 / recipe.classes
    values, vectors = torch.linalg.eigh(x @ x.T)
    inner, outer = vectors.T @ target, z @ x.T @ vectors
    fits = [outer @ (inner / (values[:, None] + 18 * w)) for w in (30, 100, 300, 1000)]
    return max(float((fit.argmax(1) == expected).float().mean()) for fit in fits)


@pytest.mark.parametrize("recipe", GOLDEN, ids=lambda recipe: f"{recipe.classes}-classes")
def test_the_bytes_are_the_same_on_every_machine(recipe: Recipe) -> None:
    images, labels = draw(recipe, "train", 1000, 40)

    assert hashlib.sha256(images.tobytes()).hexdigest()[:16] == GOLDEN[recipe]
    assert labels.tolist() == [index % recipe.classes for index in range(1000, 1040)]


@settings(max_examples=25, deadline=None)
@given(
    start=st.integers(0, 2**40),
    first=st.integers(0, 90),
    size=st.sampled_from([8, 17, 32]),
    classes=st.sampled_from([2, 10, 16, 17, 128, 129, 1153, MAX_CLASSES]),
)
def test_any_slice_has_the_same_bytes(start: int, first: int, size: int, classes: int) -> None:
    recipe = Recipe(classes=classes, size=size)
    images, labels = draw(recipe, "val", start, 90)
    head, tail = draw(recipe, "val", start, first), draw(recipe, "val", start + first, 90 - first)

    np.testing.assert_array_equal(np.concatenate([head[0], tail[0]]), images)
    np.testing.assert_array_equal(np.concatenate([head[1], tail[1]]), labels)


def test_a_chunk_boundary_changes_nothing() -> None:
    recipe = Recipe(size=64)  # 16 images per chunk
    images, _ = draw(recipe, "train", 3, 40)

    one_by_one = [draw(recipe, "train", 3 + index, 1)[0][0] for index in range(40)]
    np.testing.assert_array_equal(np.stack(one_by_one), images)


def test_seeds_splits_and_indices_give_other_images() -> None:
    images = [
        draw(Recipe(seed=seed), split, start, 10)[0].tobytes()
        for seed in (1, 2)
        for split in ("train", "val")
        for start in (0, 10)
    ]

    assert len(set(images)) == 8


def test_neighbours_are_independent() -> None:
    """The position of a shape is independent of that of the next."""
    images, _ = draw(Recipe(classes=2, noise=0.0), "train", 0, 4000)
    weight = images.astype(np.float64).sum(3)
    weight /= weight.sum((1, 2), keepdims=True)
    x = (weight.sum(1) * np.arange(32)).sum(1)
    y = (weight.sum(2) * np.arange(32)).sum(1)

    assert x.std() > 1  # pixels: it does move
    for one, other in ((x[:-1], x[1:]), (y[:-1], y[1:]), (x, y)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.06


def test_every_class_has_a_look_of_its_own() -> None:
    look = look_of(np.arange(MAX_CLASSES))
    looks = {*zip(look.shape, look.texture, look.hue, look.ground_hue, strict=True)}

    assert len(looks) == MAX_CLASSES


def test_noise_is_as_strong_as_asked() -> None:
    clean, _ = draw(Recipe(noise=0.0), "train", 0, 200)
    noisy, _ = draw(Recipe(noise=0.06), "train", 0, 200)
    middle = (clean > 50) & (clean < 200)  # where nothing is clipped
    difference = (noisy.astype(np.float64) - clean)[middle] / 255

    assert difference.std() == pytest.approx(0.06, rel=0.02)
    assert abs(difference.mean()) < 0.001


@pytest.mark.parametrize("wrong", [{"classes": 1}, {"classes": 10_001}, {"size": 4}, {"seed": -1}])
def test_what_cannot_be_drawn_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Recipe(**wrong)


def test_drawing_needs_no_torch() -> None:
    code = "import sys, vflops.data.images.drawing; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("one_thread")
def test_a_linear_classifier_does_badly() -> None:
    assert 0.15 < ridge_accuracy(Recipe(), train=800, val=1000) < 0.33


@pytest.mark.usefixtures("one_thread")
def test_a_linear_classifier_does_badly_with_many_classes() -> None:
    assert ridge_accuracy(Recipe(classes=100, size=24), train=1000, val=1000) < 0.1


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("shuffled", [False, True])
def test_a_network_learns_the_true_labels_only(shuffled: bool) -> None:
    """A small version of benchmarks/synthetic_images.py."""
    accuracy = short_training(shuffled=shuffled)

    assert 0.06 < accuracy < 0.14 if shuffled else accuracy > 0.4


def short_training(*, shuffled: bool) -> float:
    torch.manual_seed(1)
    recipe = Recipe(classes=10)
    (x, y), (z, expected) = tensors(recipe, "train", 800), tensors(recipe, "val", 1000)
    y = y[torch.randperm(len(y))] if shuffled else y
    layers: list[torch.nn.Module] = []
    for inner, outer, kernel in ((3, 12, 5), (12, 24, 3), (24, 48, 3)):
        convolution = torch.nn.Conv2d(inner, outer, kernel, 2, kernel // 2, bias=False)
        layers += [convolution, torch.nn.BatchNorm2d(outer), torch.nn.ReLU()]
    tail = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(48, 10)]
    network = torch.nn.Sequential(*layers, *tail)
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(6):
        for batch in torch.randperm(len(x)).split(40):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
            optimizer.step()
    network.eval()
    with torch.no_grad():
        return float((network(z).argmax(1) == expected).float().mean())
