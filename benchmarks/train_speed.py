"""Samples a second of the training engine: from packed data, from one batch, and a plain loop.

    python benchmarks/train_speed.py [WORKLOAD] [--profile laptop] [--rounds 5] [--steps 20]
                                     [--set KEY=VALUE]

All in one process, in turns, so that a busy machine slows all of them: the engine's step on one
batch that stays on the device, the engine with its loader on packed data, and, for images, a loop
as a person writes it with the same model, batch, precision and optimizer, its images in memory.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from vflops.record.formats.job import JobRecord
from vflops.run import jobs
from vflops.train.backends.factory import joined_backend
from vflops.train.context import JobContext
from vflops.train.engine import Engine
from vflops.train.loader import Loader, loader
from vflops.train.parallel.data_parallel import DataParallel
from vflops.train.phase_clock import Clock
from vflops.train.precision import Precision
from vflops.train.rank_device import rank_device, use_threads
from vflops.train.signals import StopRequest
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.contract.workload import Inputs
from vflops.workloads.image_classification.data import ImageSamples


def engine(
    arguments: argparse.Namespace,
    folder: Path,
    *,
    epochs: int | None = 100_000,
    connected: bool = False,
) -> Engine:
    """The engine of a profile; with ``epochs``, its batches do not come to an end.

    A ``connected`` rank has a process group and averages its gradients, as one of several does.
    """
    endless = [] if epochs is None else [f"train.epochs={epochs}"]
    settings = load(
        profile(arguments.profile, [arguments.workload]), None, [*arguments.set, *endless]
    )
    (prepared,) = jobs.prepare(settings, lambda what, done, whole: None)
    train = prepared.settings.train
    record = JobRecord(
        job=1,
        workload=prepared.spec.name,
        repeat=0,
        seed=settings.seed,
        ranks=1,
        goal=prepared.goal(settings.profile),
        settings=prepared.settings.model_dump(mode="json"),
        data=prepared.data,
    )
    device = rank_device(train.device, 0)
    use_threads(device, 1)
    context = JobContext(record, 0, 0, folder / "0", None, Clock(), StopRequest())
    workload = prepared.spec.load_code().create(prepared.settings, prepared.data)
    precision = Precision.named(train.precision, device)
    if connected:
        context.attempt.mkdir()
        plan = DataParallel(0, 1, device, context.store, train.communication)
        return Engine.with_torch(context, train, workload, plan, precision, device)
    with joined_backend(context, train, workload, precision, device) as (group, backend):
        return Engine(context, train, workload, group, precision, backend)


def batches(made: Engine) -> Loader:
    """As the loop reads them, without an end."""
    loop = made.loop()
    return loader(loop._samples, loop._requests(0), loop._prepare_batch, made.device)


def plain_loop(made: Engine) -> Callable[[], None]:
    """A step of a loop as a person writes it: images in memory, shuffled, flipped, normalised."""
    images, labels = in_memory(made)
    model = made.workload.model().to(made.device)
    layout: Any = {"memory_format": torch.channels_last}
    model.to(**layout)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    mean, spread = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    batch = made.settings.batch

    def orders() -> Iterator[torch.Tensor]:
        while True:
            for part in torch.randperm(len(images)).split(batch):
                if len(part) == batch:
                    yield part

    chosen = orders()

    def step() -> None:
        part = next(chosen)
        x = (images[part] - mean) / spread
        if torch.rand(()) < 0.5:
            x = x.flip(3)
        x = x.to(made.device, **layout)
        with made.precision.autocast():
            scores = model(x)
        loss = functional.cross_entropy(
            scores.float(), labels[part].to(made.device), label_smoothing=0.1
        )
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


def in_memory(made: Engine) -> tuple[torch.Tensor, torch.Tensor]:
    samples = made.workload.samples("train")
    assert isinstance(samples, ImageSamples)
    split = samples._split
    size = int(split.heights[0])
    flat = torch.empty(len(split) * int(split.sizes_bytes.max()), dtype=torch.uint8)
    split.read(range(len(split)), flat.numpy())
    images = flat.view(len(split), size, size, 3).permute(0, 3, 1, 2).float() / 255
    return images, torch.from_numpy(split.labels)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", nargs="?", default="image-classification")
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--no-plain", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = engine(arguments, Path(folder))
        with made.precision.settings():
            measure(made, arguments)


def measure(made: Engine, arguments: argparse.Namespace) -> None:
    source = batches(made)
    incoming = iter(source)
    kept: list[Inputs] = [next(incoming)]
    ways: dict[str, Callable[[], object]] = {
        "engine, packed data": lambda: made.state.take_step([next(incoming)], 0.01),
        "engine, one batch": lambda: made.state.take_step(kept, 0.01),
    }
    if arguments.workload == "image-classification" and not arguments.no_plain:
        ways["plain loop"] = plain_loop(made)
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(arguments.rounds + 1):  # the first round warms up
        for name, step in ways.items():
            synchronise(made.device)
            start_s = time.perf_counter()
            for _ in range(arguments.steps):
                step()
            synchronise(made.device)
            if number:
                took_s = time.perf_counter() - start_s
                rates[name].append(arguments.steps * made.settings.batch / took_s)
    source.close()
    print(f"torch {torch.__version__}, {made.device}, {made.settings.precision}, ", end="")
    print(f"batch {made.settings.batch}, recorded {made.backend.recorded}, ", end="")
    print(f"compiled {made.backend.compiled}")
    base = statistics.median(rates["engine, packed data"])
    for name, speeds in rates.items():
        middle = statistics.median(speeds)
        print(
            f"{name:22} {middle:9.1f} samples/s  {min(speeds):9.1f} to {max(speeds):9.1f}"
            f"   packed/this {base / middle:.3f}"
        )


def synchronise(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


if __name__ == "__main__":
    main()
