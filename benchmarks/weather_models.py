"""What trained detectors are worth: together, and on frames whose boxes belong to others.

    python benchmarks/weather_models.py RUN            the models of a run with --repeat N, fused
    python benchmarks/weather_models.py --shuffled 3   seeds of laptop on shuffled frames

``RUN`` is a run of extreme-weather with its checkpoints: every model is evaluated on validation and
test frames alone, then all of them fused. Shuffled frames are the profile's own, each with the
boxes of another, so that fields say nothing of boxes; frames that are not shuffled judge them.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vflops.config.profiles import profile
from vflops.config.settings import load
from vflops.data.batch_memory import Room
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.climate.synthetic_weather import ORIGIN, years_of
from vflops.data.climate.weather import OFFSET, SCALE, WeatherRecipe, draw
from vflops.metrics.detection import average_precision, match_frames
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.run import pipeline
from vflops.train.checkpoint import Checkpoints
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.contract.workload import Split
from vflops.workloads.extreme_weather.fusion import fuse
from vflops.workloads.extreme_weather.settings import WeatherSettings, laptop
from vflops.workloads.extreme_weather.workload import ExtremeWeather

BATCH = 8
Detections = NDArray[np.float32]


def detected(folder: RunFolder, record: JobRecord, split: Split) -> tuple[Detections, float]:
    """What the trained model of a job finds, and its mAP."""
    settings = WeatherSettings.model_validate(record.settings)
    workload = ExtremeWeather.create(settings, record.data)
    found = Checkpoints(folder.job_file(record.job).parent / "checkpoint").load(_refuse)
    assert found is not None, "the run has no checkpoints any more"
    model = workload.model()
    model.load_state_dict(found[1]["model"])
    model.eval()
    samples = workload.samples(split)
    rows = []
    with torch.no_grad():
        for start in range(0, len(samples), BATCH):
            places = np.arange(start, min(start + BATCH, len(samples)))
            inputs = workload.inputs(samples.read(places, BatchMemory()), None, torch.float32)
            rows.append(workload.predict(model(*inputs[: workload.model_inputs])).numpy())
    whole = np.concatenate(rows)
    return whole, quality(whole, workload, split)


def quality(rows: Detections, workload: ExtremeWeather, split: Split) -> float:
    samples = workload.samples(split)._split
    matches = match_frames(rows, samples.boxes, samples.labels, classes=4)
    return average_precision(matches).mean_ap50 or 0.0


def _refuse(file: str, reason: str) -> None:
    raise SystemExit(f"{file}: {reason}")


def together(run: Path) -> None:
    folder = RunFolder.open(run)
    records = [job.record for job in Contents(folder).trained]
    workload = ExtremeWeather.create(
        WeatherSettings.model_validate(records[0].settings), records[0].data
    )
    splits: tuple[Split, ...] = ("validation", "test")
    for split in splits:
        each = [detected(folder, record, split) for record in records]
        alone = [mean for _, mean in each]
        print(f"{split}: alone " + " ".join(f"{value:.3f}" for value in alone))
        for number in sorted({2, 4, len(each)}):
            if number <= len(each):
                fused = quality(fuse([rows for rows, _ in each[:number]]), workload, split)
                mean = float(np.mean(alone[:number]))
                print(f"{split}: {number:2} fused {fused:.3f}, their mean alone {mean:.3f}")


def shuffled(seeds: int) -> None:
    made = laptop().synthetic
    recipe = WeatherRecipe(made.height, made.width, made.seed)
    with tempfile.TemporaryDirectory() as place:
        packed = Path(place) / "packed"
        write_shuffled(recipe, packed, made.train, made.validation, made.test)
        for seed in range(1, seeds + 1):
            settings = load(
                profile("laptop", ["extreme-weather"]),
                None,
                [f"seed={seed}", f"data={packed}", f"target={made.target}", "micro.benchmarks=[]"],
            )
            folder = pipeline.start(Path(place), "extreme-weather", settings, pipeline.Watch())
            (trained,) = Contents(folder).trained
            last = trained.evaluations[-1].evaluated
            print(f"shuffled, seed {seed}: mAP@0.5 {last.quality:.4f} after {last.epoch} epochs")


def write_shuffled(
    recipe: WeatherRecipe, place: Path, train: int, validation: int, test: int
) -> None:
    years = years_of(train, validation, test)
    with FrameWriter(
        place,
        origin=ORIGIN,
        height=recipe.height,
        width=recipe.width,
        layout="half",
        offset=OFFSET,
        scale=SCALE,
        synthetic=True,
        recipe=recipe.as_dict(),
        years={split: tuple(of) for split, of in years.items()},
    ) as writer:
        for split, of_split in years.items():
            for year, count in of_split.items():
                order = np.random.default_rng(1).permutation(count)
                for number in range(count):
                    frame = draw(recipe, year, number)
                    other = draw(recipe, year, int(order[number])) if split == "train" else frame
                    writer.add(split, frame.fields, other.boxes)
        writer.finish()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--shuffled", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.run:
        together(arguments.run)
    if arguments.shuffled:
        shuffled(arguments.shuffled)


if __name__ == "__main__":
    main()
