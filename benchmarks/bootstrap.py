"""Drawing the bag of a model, against copying each drawn file under a new name, in the same run.

    python benchmarks/bootstrap.py [--files N] [--bytes B] [--rounds R] [--folder DIR]

The published way writes a bag out before training: a file that was drawn twice is copied twice.
Here it copies from the page cache and is not made to wait for the disk, which flatters it. Both
draw the same bag; each round another model's, by turns; the quickest round of each counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from vflops.data.bootstrap import bag
from vflops.units import quantity, seconds

SEED = 1
IMAGENET = 1_281_167


def copied(source: Path, target: Path, files: int, model: int) -> tuple[float, int]:
    """Seconds to copy the bag's files, and the bytes that they then take."""
    started_s = time.perf_counter()
    target.mkdir()
    for place, index in enumerate(bag("poisson", SEED, model, files).tolist()):
        shutil.copyfile(source / f"{index}.jpg", target / f"{place}-{index}.jpg")
    took_s = time.perf_counter() - started_s
    size = sum(path.stat().st_size for path in target.iterdir())
    shutil.rmtree(target)
    return took_s, size


def derived(files: int, model: int) -> float:
    """Seconds to derive the bag's indices."""
    started_s = time.perf_counter()
    bag("poisson", SEED, model, files)
    return time.perf_counter() - started_s


def row(what: str, took_s: float, size: float) -> None:
    print(f"{what:42} {seconds(took_s):>9} {quantity(size, 'B'):>9}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to copy; the temporary folder if absent")
    arguments = parser.parse_args()
    files = arguments.files
    bag("poisson", SEED, 0, files)  # the first call imports and caches
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        source = Path(folder) / "source"
        source.mkdir()
        for index in range(files):
            (source / f"{index}.jpg").write_bytes(os.urandom(arguments.bytes))
        copies, draws = [], []
        for model in range(arguments.rounds):
            copies.append(copied(source, Path(folder) / "bag", files, model))
            draws.append(derived(files, model))
    large_s = min(derived(IMAGENET, model) for model in range(arguments.rounds))
    (copy_s, size), draw_s = min(copies), min(draws)

    print(f"a bag of {files:,} files of {quantity(arguments.bytes, 'B')}: time and bytes written")
    row("each drawn file copied under a new name", copy_s, size)
    row("indices derived", draw_s, 0)
    row(f"indices derived for {IMAGENET:,} samples", large_s, 0)
    print(f"copying takes {copy_s / draw_s:,.0f} times as long")


if __name__ == "__main__":
    main()
