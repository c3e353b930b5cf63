"""The mAP of trained detectors: alone, fused, and trained on frames with the boxes of others.

    python benchmarks/weather_models.py RUN            the models of a run with --repeat N, fused
    python benchmarks/weather_models.py --shuffled 3   three seeds of laptop on shuffled frames

``RUN`` is a run of extreme-weather with its checkpoints: each model is evaluated on validation and
test frames, then all of them fused. Shuffled training frames are those of the profile, each with
the boxes of another frame, so that fields say nothing about boxes; validation is not shuffled.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from vflops.data.batch_memory import BatchMemory
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.climate.synthetic_weather import ORIGIN, years_of
from vflops.data.climate.weather import OFFSET, SCALE, WeatherRecipe, draw
from vflops.metrics.detection import average_precision, match_frames
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.record.readout.contents import Contents
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.train.checkpoint import Checkpoints
from vflops.workloads.contract.run_settings import load, profile
from vflops.workloads.contract.workload import Split
from vflops.workloads.extreme_weather.fusion import fuse
from vflops.workloads.extreme_weather.settings import WeatherSettings, laptop
from vflops.workloads.extreme_weather.workload import ExtremeWeather

BATCH = 8
Detections = NDArray[np.float32]


def detected(folder: RunFolder, record: JobRecord, split: Split) -> tuple[Detections, float]:
    """Return the detections of a job's trained model, and its mAP."""
    settings = WeatherSettings.model_validate(record.settings)
    workload = ExtremeWeather.create(settings, record.data)
    checkpoint = Checkpoints(folder.job_file(record.job).parent / "checkpoint").load(_refuse)
    assert checkpoint is not None, "the run no longer has checkpoints"
    model = workload.model()
    model.load_state_dict(checkpoint[1]["model"])
    model.eval()
    samples = workload.samples(split)
    rows = []
    with torch.no_grad():
        for start in range(0, len(samples), BATCH):
            indices = np.arange(start, min(start + BATCH, len(samples)))
            inputs = workload.inputs(samples.read(indices, BatchMemory()), None, torch.float32)
            rows.append(workload.predict(model(*inputs[: workload.model_inputs])).numpy())
    detections = np.concatenate(rows)
    return detections, quality(detections, workload, split)


def quality(rows: Detections, workload: ExtremeWeather, split: Split) -> float:
    samples = workload.samples(split)._split
    matches = match_frames(rows, samples.boxes, samples.labels, classes=4)
    return average_precision(matches).mean_ap50 or 0.0


def _refuse(file: str, reason: str) -> None:
    raise SystemExit(f"{file}: {reason}")


def fused(run: Path) -> None:
    folder = RunFolder.open(run)
    records = [job.record for job in Contents(folder).training_jobs]
    workload = ExtremeWeather.create(
        WeatherSettings.model_validate(records[0].settings), records[0].data
    )
    splits: tuple[Split, ...] = ("validation", "test")
    for split in splits:
        models = [detected(folder, record, split) for record in records]
        alone = [mean_ap for _, mean_ap in models]
        print(f"{split}: alone " + " ".join(f"{value:.3f}" for value in alone))
        for number in sorted({2, 4, len(models)}):
            if number <= len(models):
                together = quality(fuse([rows for rows, _ in models[:number]]), workload, split)
                mean = float(np.mean(alone[:number]))
                print(f"{split}: {number:2} fused {together:.3f}, mean alone {mean:.3f}")


def shuffled(seeds: int) -> None:
    data = laptop().synthetic
    recipe = WeatherRecipe(data.height, data.width, data.seed)
    with tempfile.TemporaryDirectory() as temporary:
        packed = Path(temporary) / "packed"
        write_shuffled(recipe, packed, data.train, data.validation, data.test)
        for seed in range(1, seeds + 1):
            settings = load(
                profile("laptop", ["extreme-weather"]),
                None,
                [f"seed={seed}", f"data={packed}", f"target={data.target}", "micro.benchmarks=[]"],
            )
            folder = pipeline.start(Path(temporary), "extreme-weather", settings, RunObserver())
            (trained,) = Contents(folder).training_jobs
            last = trained.evaluations[-1].evaluated
            print(f"shuffled, seed {seed}: mAP@0.5 {last.quality:.4f} after {last.epoch} epochs")


def write_shuffled(
    recipe: WeatherRecipe, folder: Path, train: int, validation: int, test: int
) -> None:
    years = years_of(train, validation, test)
    with FrameWriter(
        folder,
        origin=ORIGIN,
        height=recipe.height,
        width=recipe.width,
        layout="half",
        offset=OFFSET,
        scale=SCALE,
        synthetic=True,
        recipe=recipe.as_dict(),
        years={split: tuple(lengths) for split, lengths in years.items()},
    ) as writer:
        for split, lengths in years.items():
            for year, count in lengths.items():
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
        fused(arguments.run)
    if arguments.shuffled:
        shuffled(arguments.shuffled)


if __name__ == "__main__":
    main()
