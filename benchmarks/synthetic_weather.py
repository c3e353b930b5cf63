"""The cost of drawing synthetic weather, and the mAP of guessing without looking at fields.

    python benchmarks/synthetic_weather.py [--seeds 4] [--height 96] [--width 144]
                                           [--train 2000] [--test 1000] [--full]

For each seed: frames per second on one core, storms of each class per frame, and the mean average
precision at IoU 0.5 of the best constant boxes, the same for every frame. ``--full`` also draws and
writes frames of the published size.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflops.data.climate.box_rows import pad_boxes
from vflops.data.climate.field_names import CLASSES
from vflops.data.climate.synthetic_weather import write_years
from vflops.data.climate.weather import WeatherRecipe, boxes_of, draw, storms_of
from vflops.metrics.detection import average_precision, match_frames
from vflops.metrics.detection_boxes import overlaps

GUESSES = 60  # per class: more do not change the result
FULL = (768, 1152)


Rows = NDArray[np.int32]  # of a frame: ymin, xmin, ymax, xmax, class


def planned(recipe: WeatherRecipe, year: int, frames: int) -> list[Rows]:
    return [boxes_of(storms_of(recipe, year, number)) for number in range(frames)]


def truths(frames: Sequence[Rows]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    pairs = [pad_boxes(rows) for rows in frames]
    return np.stack([boxes for boxes, _ in pairs]), np.stack([labels for _, labels in pairs])


def guesses(frames: Sequence[Rows]) -> NDArray[np.float32]:
    """Return the boxes of ``frames`` that match the most others, chosen greedily: (K, 6).

    Each box is the one that matches the most boxes not matched before; its score is the number of
    matches per frame.
    """
    boxes, labels = truths(frames)
    rows: list[NDArray[np.float32]] = []
    for label in range(len(CLASSES)):
        of_class = boxes[labels == label].astype(np.float64)
        near = overlaps(of_class[:, None], of_class[None]) >= 0.5
        unmatched = np.ones(len(of_class), np.bool_)
        for _ in range(GUESSES):
            hits = (near & unmatched).sum(axis=1)
            best = int(hits.argmax())
            if not hits[best]:
                break
            score = hits[best] / len(frames)
            rows.append(np.array([*of_class[best], score, label], np.float32))
            unmatched &= ~near[best]
    best_first = np.argsort([-row[4] for row in rows], kind="stable")
    return np.stack([rows[i] for i in best_first])


def blind(train: Sequence[Rows], test: Sequence[Rows]) -> NDArray[np.float64]:
    """Return the average precision by class of constant boxes."""
    same = np.broadcast_to(guesses(train), (len(test), *guesses(train).shape))
    boxes, labels = truths(test)
    return average_precision(match_frames(same, boxes, labels, classes=len(CLASSES))).ap50


def seconds_per_frame(recipe: WeatherRecipe, frames: int) -> float:
    draw(recipe, 1979, 0)  # the land is drawn once
    started_s = time.perf_counter()
    for number in range(frames):
        draw(recipe, 1979, number)
    return (time.perf_counter() - started_s) / frames


def measure(recipe: WeatherRecipe, options: argparse.Namespace) -> None:
    rate = 1 / seconds_per_frame(recipe, 40)
    train = planned(recipe, 1979, options.train)
    labels = np.concatenate([rows[:, 4] for rows in train])
    storms_per_frame = np.bincount(labels, minlength=len(CLASSES)) / len(train)
    ap = blind(train, planned(recipe, 1980, options.test))
    cells = " ".join(f"{value:5.2f}" for value in storms_per_frame) + "  |"
    cells += " ".join(f"{value:6.3f}" for value in ap) + f"  |{ap.mean():6.3f}"
    print(f"{recipe.seed:4} {rate:10.1f}  | {cells}", flush=True)


def full_size(frames: int = 4) -> None:
    recipe = WeatherRecipe(*FULL)
    print(f"{FULL[0]} × {FULL[1]}: {seconds_per_frame(recipe, frames):.2f} s per frame on one core")
    for compression in (None, "lzf", "gzip"):
        with tempfile.TemporaryDirectory() as folder:
            started_s = time.perf_counter()
            (path,) = write_years(
                recipe, Path(folder) / "set", {1979: frames}, compression=compression, workers=1
            )
            took_s = (time.perf_counter() - started_s) / frames
            size = path.stat().st_size / frames / 1e6
        print(f"  {compression or 'plain':>5}: {size:5.1f} MB and {took_s:.2f} s per frame")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, default in (
        ("seeds", 4),
        ("height", 96),
        ("width", 144),
        ("train", 2000),
        ("test", 1000),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    print(f"numpy {np.__version__}, {options}")
    print("classes: " + ", ".join(f"{label} {name}" for label, name in enumerate(CLASSES)))
    print("seed   frames/s  |  storms per frame, by class |    blind AP, by class       |   mAP")
    for seed in range(1, options.seeds + 1):
        measure(WeatherRecipe(options.height, options.width, seed), options)
    if options.full:
        full_size()


if __name__ == "__main__":
    main()
