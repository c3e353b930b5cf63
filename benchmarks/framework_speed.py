"""Samples a second of every framework on one machine, on a batch that stays on the device.

    python -m benchmarks.framework_speed [--profile laptop] [--rounds 3] [--steps 20]
                                         [--frameworks pytorch,jax,…] [--set KEY=VALUE]
                                         [--python .venv-tensorflow/bin/python]

Each framework has a process of its own, and all take turns ``--rounds`` times; the table has the
median and the extremes, and the load of the machine is printed before and after. ``torchvision`` is
a plain loop with torchvision's ResNet-50 and torch.compile. Compilation and the first steps are not
timed, but shown.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.framework_environments import add_options, interpreters, measured
from benchmarks.train_speed import batches, engine


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """The speed of one framework in this process."""
    name = arguments.frameworks
    began_s = time.perf_counter()
    if name != "torchvision":
        arguments.set.append(f"train.framework={name}")
    with tempfile.TemporaryDirectory() as folder:
        made = engine(arguments, Path(folder))
        with made.precision.settings():
            source = batches(made)
            kept = [next(iter(source))]
            source.close()
            step: Callable[[], torch.Tensor] = partial(made.state.take_step, kept, 0.01)
            if name == "torchvision":
                step = torchvision_step(kept[0], made.precision)
            for _ in range(5):
                loss = float(step())
            ready_s = time.perf_counter() - began_s
            start_s = time.perf_counter()
            for _ in range(arguments.steps):
                tensor = step()
            last = float(tensor)  # waits for the device
            took_s = time.perf_counter() - start_s
    speed = arguments.steps * made.settings.batch / took_s
    return {"samples_per_s": speed, "ready_s": ready_s, "first": loss, "last": last}


def torchvision_step(batch: tuple[torch.Tensor, ...], precision: Any) -> Callable[[], torch.Tensor]:
    """ResNet-50 of torchvision, compiled, with SGD."""
    import torchvision

    images, labels = batch
    torch.backends.cudnn.benchmark = True
    layout: Any = {"memory_format": torch.channels_last}
    model = torchvision.models.resnet50(num_classes=int(labels.max()) + 1).to(
        images.device, **layout
    )
    images = images.to(**layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=images.is_cuda)

    @torch.compile
    def objective(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with precision.autocast():
            scores = model(images)
        return torch.nn.functional.cross_entropy(scores.float(), labels, label_smoothing=0.1)

    def step() -> torch.Tensor:
        loss: torch.Tensor = objective(images, labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", default="laptop")
    add_options(parser, "torchvision")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--one", action="store_true", help="measure here and print JSON")
    arguments = parser.parse_args()
    arguments.workload = "image-classification"
    if arguments.one:
        print(json.dumps(measure(arguments)))
        return
    pythons = interpreters(arguments)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in pythons}
    words = [f"--set={item}" for item in arguments.set]
    words += [f"--{key}={getattr(arguments, key)}" for key in ("profile", "steps")]
    print(f"load {os.getloadavg()[0]:.1f}")
    for _ in range(arguments.rounds):
        for name, python in pythons.items():
            row = measured(
                python, "benchmarks.framework_speed", "--one", *words, "--frameworks", name
            )
            rows[name] += [] if row is None else [row]
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'framework':12} {'samples/s':>10} {'lowest':>10} {'highest':>10} {'ready':>8}")
    for name, found in rows.items():
        if found:
            speeds = [row["samples_per_s"] for row in found]
            ready_s = statistics.median(row["ready_s"] for row in found)
            print(
                f"{name:12} {statistics.median(speeds):10,.0f} {min(speeds):10,.0f} "
                f"{max(speeds):10,.0f} {ready_s:6.1f} s"
            )


if __name__ == "__main__":
    main()
