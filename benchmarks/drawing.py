"""The cost of drawing the synthetic frames and images of a profile.

    python -m benchmarks.drawing [--profile gpu] [--workers N] [--share 1.0] [--folder DIR]

For the data of each workload: wall time, CPU time of all processes per sample, peak memory of a
worker and of this process, bytes written, and the fingerprint, which must be the same on every
machine. ``--share 0.05`` draws a twentieth of the samples. Data is written to a temporary folder in
``--folder``, by default the cache, and deleted.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.climate import synthetic_weather
from vflops.data.climate.weather import WeatherRecipe
from vflops.data.images import synthetic_images
from vflops.data.images.drawing import Recipe
from vflops.data.packed_folder import PackedFolder
from vflops.machine.system.cpu_share import available_cpus
from vflops.record.files.cache import cache_folder
from vflops.workloads.automl import settings as automl
from vflops.workloads.extreme_weather import settings as weather
from vflops.workloads.image_classification import settings as images


@dataclass(frozen=True)
class Case:
    """The data of one workload."""

    name: str
    samples: int
    pack: Callable[[Path], PackedFolder[Any]]


def cases(options: argparse.Namespace) -> list[Case]:
    share: float = options.share

    def part(samples: int) -> int:
        return max(1, round(samples * share))

    drawn = []
    of_weather = weather.PROFILES[options.profile]().synthetic
    counts = part(of_weather.train), part(of_weather.validation), part(of_weather.test)
    recipe = WeatherRecipe(of_weather.height, of_weather.width, of_weather.seed)
    drawn.append(
        Case(
            f"frames, {recipe.height} × {recipe.width}",
            sum(counts),
            lambda folder: synthetic_weather.pack(recipe, folder, *counts, workers=options.workers),
        )
    )
    for of_images in (
        images.PROFILES[options.profile]().synthetic,
        automl.PROFILES[options.profile]().synthetic,
    ):
        drawn.append(image_case(of_images, part, options.workers))
    return drawn


def image_case(synthetic: Any, part: Callable[[int], int], workers: int) -> Case:
    recipe = Recipe(classes=synthetic.classes, size=synthetic.size, seed=synthetic.seed)
    train, val = max(part(synthetic.train), recipe.classes), part(synthetic.validation)
    return Case(
        f"images, {recipe.size} px, {recipe.classes} classes",
        train + val,
        lambda folder: synthetic_images.pack(recipe, folder, train, val, workers=workers),
    )


def cpu_s() -> float:
    """Return the CPU time of this process and of its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(case: Case, folder: Path) -> None:
    cpu_before_s, started_s = cpu_s(), time.perf_counter()
    packed = case.pack(folder / "packed")
    wall_s = time.perf_counter() - started_s
    used_s = cpu_s() - cpu_before_s
    written = sum(file.stat().st_size for file in packed.path.iterdir())
    worker, parent = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)
    )
    print(
        f"{case.name:28} {case.samples:8} {wall_s:8.2f} {used_s:8.1f} "
        f"{used_s / case.samples * 1e3:14.2f} {written / 1e6:8.0f} {worker:10.0f} {parent:10.0f}  "
        f"{packed.fingerprint[:16]}",
        flush=True,
    )
    shutil.rmtree(packed.path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--profile", default="gpu", choices=list(weather.PROFILES))
    parser.add_argument("--workers", type=int, default=available_cpus())
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=cache_folder())
    options = parser.parse_args()
    print(f"numpy {np.__version__}, {options}")
    print(
        f"{'data':28} {'samples':>8} {'wall s':>8} {'CPU s':>8} {'CPU ms/sample':>14} {'MB':>8} "
        f"{'worker MB':>10} {'parent MB':>10}  fingerprint"
    )
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="drawing-") as folder:
        for case in cases(options):
            measure(case, Path(folder))


if __name__ == "__main__":
    main()
