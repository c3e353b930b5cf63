"""Whether packed years suit a run: their split, their frames and their boxes."""

from __future__ import annotations

from vflops.data.climate.frame_index import SPLITS
from vflops.data.climate.packed_frames import PackedFrames
from vflops.errors import Hint, UsageError
from vflops.workloads.extreme_weather.settings import WeatherSettings


def check_split(frames: PackedFrames, settings: WeatherSettings) -> None:
    """Raise ``UsageError`` for settings that would have no effect on packed years."""
    if settings.box_order is not None:
        raise UsageError(
            f"box_order is {settings.box_order}, but the boxes of {frames.path} are already packed",
            hint="leave it out, or pack the years again: vflops data pack DIR DEST --box-order "
            f"{settings.box_order}",
        )
    chosen, index = settings.years, frames.index
    packed_years = {name: tuple(sorted(index.years.get(name, ()))) for name in SPLITS}
    wanted_years = {name: tuple(sorted(years)) for name, years in chosen}
    if not wanted_years["train"]:
        held_out = {*wanted_years["validation"], *wanted_years["test"]}
        all_years = sorted(year for years in packed_years.values() for year in years)
        wanted_years["train"] = tuple(year for year in all_years if year not in held_out)
    if chosen.is_set and wanted_years != packed_years:
        description = "; ".join(
            f"{name} {format_years(years)}" for name, years in packed_years.items() if years
        )
        options = " ".join(
            f"--{name}-years {_join_years(years)}" for name, years in chosen if years
        )
        raise UsageError(
            f"years are set, but {frames.path} is already split: {description}",
            hint=Hint(
                "leave them out, or pack the years again", f"vflops data pack DIR DEST {options}"
            ),
        )


def check_frames(frames: PackedFrames, generated: bool) -> None:
    """Raise ``UsageError`` if there is nothing to train on, or nothing to evaluate."""
    for name in ("train", "validation"):
        if name not in frames.index.splits or not frames.index.splits[name].frames:
            raise UsageError(
                f"{frames.path} has no frames for {name}: it cannot be used for "
                + ("training" if name == "train" else "evaluation"),
                hint="pack it with years for both: vflops data pack DIR DEST --train-years "
                "1979-1988 --validation-years 1989",
            )
        split = frames.index.splits[name]
        if not split.boxes:
            raise UsageError(
                f"{frames.path} has no box in the {split.frames:,} frames of {name}: there is "
                + ("nothing to learn" if name == "train" else "nothing to evaluate"),
                hint=f"generate more: --set synthetic.{name}={10 * split.frames}"
                if generated
                else f"pack years that have boxes: vflops data pack DIR DEST --{name}-years 1989",
            )


def _join_years(years: tuple[int, ...]) -> str:
    return ",".join(map(str, years))


def format_years(years: tuple[int, ...]) -> str:
    """Return years as text, a range of them with a dash."""
    is_contiguous = list(years) == list(range(years[0], years[-1] + 1))
    if is_contiguous and len(years) > 2:
        return f"{years[0]}–{years[-1]}"
    return " ".join(map(str, years))
