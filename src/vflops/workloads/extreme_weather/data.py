"""Prepares the frames of a job: the user's years of HDF5 data, packed or not, or generated ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vflops.data.batch_memory import BatchMemory
from vflops.data.climate import synthetic_weather
from vflops.data.climate.frame_index import align, frame_bytes
from vflops.data.climate.pack_years import bytes_needed, pack, source_identity
from vflops.data.climate.packed_frames import PackedFrames, PackedFrameSplit
from vflops.data.climate.weather import WeatherRecipe
from vflops.data.climate.year_split import YearSplit, split_years
from vflops.data.climate.years import ClimateYears
from vflops.data.packed_index import INDEX, digest
from vflops.data.sampler import Indices
from vflops.errors import Hint, UsageError
from vflops.record.files.cache import cache_entry
from vflops.record.formats.job import DataFacts
from vflops.units import quantity
from vflops.workloads.contract.code import Progress
from vflops.workloads.extreme_weather.packed_years import check_frames, check_split, format_years
from vflops.workloads.extreme_weather.settings import WeatherSettings
from vflops.workloads.packed_data import (
    MAX_AUTO_PACK_BYTES,
    check_batch,
    intact,
    options_as_settings,
    require_target,
    split_contents,
)

_MAX_SYNTHETIC_BYTES = 32 << 30
"""The maximum size of all synthetic frames."""
_TORCH_TYPES = {"half": torch.float16, "raw": torch.float32}


def prepare(settings: WeatherSettings, progress: Progress) -> DataFacts:
    """Return the packed frames that the job reads, after packing or generating them if needed."""
    if settings.data is None:
        frames = PackedFrames.open(_synthetic(settings, progress))
    elif (Path(settings.data) / INDEX).is_file():
        frames = PackedFrames.open(Path(settings.data))
        check_split(frames, settings)
        require_target(settings.target, "years", 0.35)
    else:
        with options_as_settings(_pack_options(settings.data)):
            folder = ClimateYears.open(Path(settings.data), settings.box_order)
            require_target(settings.target, "years", 0.35)
            frames = _packed(folder, settings, progress)
    check_frames(frames, generated=settings.data is None)
    frames = intact(frames)
    index = frames.index
    facts = DataFacts(
        path=str(frames.path.resolve()),
        synthetic=index.synthetic,
        fingerprint=frames.fingerprint,
        contents=split_contents(frames),
        train=index.splits["train"].frames,
        validation=index.splits["validation"].frames,
        test=index.splits["test"].frames if "test" in index.splits else 0,
        skipped=sum(len(split.left_out) for split in index.splits.values()),
        facts={
            "height": index.height,
            "width": index.width,
            "layout": index.layout,
            "split": "reference" if index.reference_split else "own",
            **{
                f"{name} years": format_years(years) for name, years in index.years.items() if years
            },
        },
        duplicates=index.duplicates,
    )
    check_batch(settings.train, facts)
    return facts


def _synthetic(settings: WeatherSettings, progress: Progress) -> Path:
    synthetic = settings.synthetic
    frames = synthetic.train + synthetic.validation + synthetic.test
    size_bytes = frames * align(frame_bytes(synthetic.height, synthetic.width, "half"))
    if size_bytes > _MAX_SYNTHETIC_BYTES:
        raise UsageError(
            f"{frames} synthetic frames would take {quantity(size_bytes, 'B')}",
            hint="give your years with --data DIR, or use fewer: --set synthetic.train=N",
        )
    recipe = WeatherRecipe(height=synthetic.height, width=synthetic.width, seed=synthetic.seed)
    on_progress = partial(progress, "drawing frames")
    on_wait = partial(progress, "waiting for a process that draws these frames", 0, frames)
    return synthetic_weather.cached_frames(
        recipe, synthetic.train, synthetic.validation, synthetic.test, on_progress, on_wait
    )


def _packed(folder: ClimateYears, settings: WeatherSettings, progress: Progress) -> PackedFrames:
    split = _split(folder, settings)
    size_bytes = bytes_needed(folder, split, "half")
    if size_bytes > MAX_AUTO_PACK_BYTES:
        raise UsageError(
            f"{folder.path} would take {quantity(size_bytes, 'B')} when packed",
            hint=Hint("pack it once, where there is room", f"vflops data pack {folder.path} DEST"),
        )
    name = digest([source_identity(folder, split), split.all, settings.faulty])
    return pack(
        folder,
        cache_entry(f"years-{name[:16]}"),
        split=split,
        policy=settings.faulty,
        on_progress=partial(progress, "packing frames"),
    )


def _split(folder: ClimateYears, settings: WeatherSettings) -> YearSplit:
    years = settings.years
    return split_years(
        folder.path,
        folder.numbers,
        train=years.train or None,
        validation=years.validation or None,
        test=years.test or None,
        option_format="--set years.{split}={years}",
    )


def _pack_options(source: str) -> dict[str, str]:
    """Return the settings or commands that replace options of `vflops data pack` in hints."""
    return {
        "--policy skip": "--set faulty=skip",
        "--box-order ": "--set box_order=",
        "--layout raw": f"vflops data pack {source} --layout raw",
    }


class FrameSamples:
    """A split of packed frames, read as they are stored."""

    def __init__(self, split: PackedFrameSplit, readers: int) -> None:
        self._split = split
        index = split.index
        self._shape, self._dtype = index.frame_shape, _TORCH_TYPES[index.layout]
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="vflops-reader")
        mean, std = np.asarray(index.mean), np.asarray(index.std)
        factor = np.asarray(index.scale) / std
        shift = (np.asarray(index.offset) - mean) / std
        self._normalisation = torch.from_numpy(np.stack([factor, shift]).astype(np.float32))

    def __len__(self) -> int:
        return len(self._split)

    def read(self, indices: Indices, memory: BatchMemory) -> tuple[Tensor, ...]:
        """Return stored values, boxes, labels, frame numbers, and the factors to normalise with."""
        count = len(indices)
        values = memory.buffer("values", (count, *self._shape), self._dtype)
        self._split.read_with(self._pool, indices, values.numpy())
        boxes = memory.buffer("boxes", (count, *self._split.boxes.shape[1:]), torch.float32)
        labels = memory.buffer("labels", (count, self._split.labels.shape[1]), torch.int64)
        frames = memory.buffer("frames", (count,), torch.int64)
        boxes.numpy()[:] = self._split.boxes[indices]
        labels.numpy()[:] = self._split.labels[indices]
        frames.numpy()[:] = indices
        normalisation = memory.buffer("normal", (2, len(self._normalisation[0])), torch.float32)
        normalisation.copy_(self._normalisation)
        return values, boxes, labels, frames, normalisation
