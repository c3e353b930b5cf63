"""How hard the synthetic images are: accuracies of simple classifiers and of a small ResNet.

    python benchmarks/synthetic_images.py [--seeds 4] [--classes 10] [--size 32] [--device cpu]

A seed is used for the images and for the training. A good data set has low accuracies for ridge and
logistic regression on pixels (the best of several regularisation strengths, chosen on the
validation images in their favour), a high accuracy for the network with every seed, and chance
accuracy for a network trained on shuffled labels.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor

from vflops.data.images.crop import SHIFT_DRAWS, centre_crop, shift
from vflops.data.images.drawing import Recipe, draw
from vflops.models.resnet import ResNet

BATCH = 64
LEARNING_RATE = 0.1
Images = tuple[Tensor, Tensor, Tensor, Tensor]  # flat pixels, offsets, heights, widths


def packed(recipe: Recipe, split: str, count: int, device: str) -> tuple[Tensor, Tensor]:
    """Return images [count, bytes] and labels."""
    images, labels = draw(recipe, split, 0, count)
    flat = torch.from_numpy(images).flatten(1)
    return flat.to(device), torch.from_numpy(labels).to(device)


def batch_of(images: Tensor, size: int) -> Images:
    offsets = torch.arange(len(images), device=images.device) * images.shape[1]
    sides = torch.full_like(offsets, size)
    return images.flatten(), offsets, sides, sides


def accuracy(scores: Tensor, labels: Tensor) -> float:
    return float((scores.argmax(1) == labels).float().mean())


def centred(images: Tensor, mean: Tensor) -> Tensor:
    return images.float() / 255 - mean


def ridge(x: Tensor, y: Tensor, z: Tensor, expected: Tensor, classes: int) -> float:
    values, vectors = torch.linalg.eigh(x.double() @ x.double().T)
    inner = vectors.T @ (F.one_hot(y, classes).double() - 1 / classes)
    outer = z.double() @ x.double().T @ vectors
    weights = (1, 10, 30, 100, 300, 1000, 3000)
    return max(accuracy(outer @ (inner / (values[:, None] + w)), expected) for w in weights)


def logistic(x: Tensor, y: Tensor, z: Tensor, expected: Tensor, classes: int) -> float:
    best = 0.0
    for decay in (3e-3, 3e-2, 1e-1):
        weight = torch.zeros(x.shape[1], classes, device=x.device, requires_grad=True)
        bias = torch.zeros(classes, device=x.device, requires_grad=True)
        solver = torch.optim.LBFGS([weight, bias], max_iter=60, line_search_fn="strong_wolfe")

        def loss(
            decay: float = decay,
            weight: Tensor = weight,
            bias: Tensor = bias,
            solver: torch.optim.LBFGS = solver,
        ) -> float:
            solver.zero_grad()
            value = F.cross_entropy(x @ weight + bias, y) + decay / 2 * weight.square().sum()
            value.backward()
            return float(value.detach())

        solver.step(loss)
        best = max(best, accuracy((z @ weight + bias).detach(), expected))
    return best


def nearest(x: Tensor, y: Tensor, z: Tensor, expected: Tensor) -> float:
    neighbour = torch.cat([torch.cdist(part, x).argmin(1) for part in z.split(250)])
    return float((y[neighbour] == expected).float().mean())


def network(
    recipe: Recipe, train: tuple[Tensor, Tensor], val: tuple[Tensor, Tensor], epochs: int
) -> float:
    """Train with a small version of HPC AI500's recipe and return the accuracy."""
    torch.manual_seed(recipe.seed)
    (images, labels), device = train, train[0].device
    model = ResNet(classes=recipe.classes, width=8, stem="small").to(device)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        model.parameters(), LEARNING_RATE, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    steps = len(images) // BATCH
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate(step, warmup=steps, total=epochs * steps)
    )
    most = max(recipe.size * 3 // 32, 1)
    for _ in range(epochs):
        order = torch.randperm(len(images)).to(device)
        for which in order[: steps * BATCH].view(steps, BATCH):
            draws = torch.rand(BATCH, SHIFT_DRAWS).to(device)
            inputs = shift(*batch_of(images[which], recipe.size), draws, recipe.size, most, "edge")
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels[which], label_smoothing=0.1).backward()
            optimizer.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        parts = [batch_of(part, recipe.size) for part in val[0].split(250)]
        scores = [model(centre_crop(*part, recipe.size, recipe.size)) for part in parts]
    return accuracy(torch.cat(scores), val[1])


def rate(step: int, *, warmup: int, total: int) -> float:
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def measure(recipe: Recipe, options: argparse.Namespace) -> list[float]:
    train = packed(recipe, "train", options.train, options.device)
    val = packed(recipe, "val", options.val, options.device)
    mean = train[0].float().mean(0) / 255
    x, z = centred(train[0], mean), centred(val[0], mean)
    sets = x, train[1], z, val[1]
    shuffled = train[0], train[1][torch.randperm(len(x)).to(x.device)]
    return [
        ridge(*sets, recipe.classes),
        logistic(*sets, recipe.classes),
        nearest(*sets),
        network(recipe, train, val, options.epochs),
        network(recipe, shuffled, val, options.epochs),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, default in (
        ("seeds", 4),
        ("classes", 10),
        ("size", 32),
        ("train", 4000),
        ("val", 1000),
        ("epochs", 9),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(min(torch.get_num_threads(), 2))
    print(f"torch {torch.__version__} on {options.device}, {options}")
    names = ("ridge", "logistic", "1-NN", "network", "shuffled")
    print(f"{'seed':>4} " + " ".join(f"{name:>9}" for name in names) + f" {'seconds':>8}")
    for seed in range(1, options.seeds + 1):
        started_s = time.perf_counter()
        recipe = Recipe(classes=options.classes, size=options.size, seed=seed)
        figures = " ".join(f"{value:9.3f}" for value in measure(recipe, options))
        print(f"{seed:4} {figures} {time.perf_counter() - started_s:8.0f}", flush=True)


if __name__ == "__main__":
    main()
