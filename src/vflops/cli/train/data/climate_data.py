"""``vflops data`` for years of climate fields."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vflops.cli.train.data.data_lines import (
    default_destination,
    print_destination,
    print_hashes,
    print_lines,
    shards_text,
)
from vflops.text import printable

if TYPE_CHECKING:
    from vflops.data.climate.box_rows import Order
    from vflops.data.climate.check_years import ClimateReport
    from vflops.data.climate.frame_index import Layout
    from vflops.data.climate.packed_frames import PackedFrames
    from vflops.data.climate.year_split import YearSplit
    from vflops.data.climate.years import ClimateYears
    from vflops.data.packing import Policy

FIRST_YEAR = 1979


def synth(
    folder: Path, years: int, frames: int, height: int, width: int, seed: int, gzip: bool
) -> None:
    """Write years of synthetic weather into ``folder``."""
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.climate.synthetic_weather import write_years
    from vflops.data.climate.weather import WeatherRecipe
    from vflops.units import count

    recipe = WeatherRecipe(height=height, width=width, seed=seed)
    frames_by_year = {FIRST_YEAR + number: frames for number in range(years)}
    with Bar("frames drawn") as bar:
        written = write_years(
            recipe,
            folder,
            frames_by_year,
            compression="gzip" if gzip else None,
            on_progress=bar.show,
        )
    files, size = count(len(written), "file"), count(frames, "frame")
    print(f"{shell_path(folder)}: {files} of {size}, {height}x{width}")
    next_step(f"vflops data check {shell_path(folder)}", "check that it is complete and readable")


def check(source: Path, json: bool, order: Order | None, workers: int | None) -> None:
    """Read every value and print all faults."""
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.climate.check_years import check as check_years
    from vflops.errors import CheckFailed

    with Bar("frames checked", quiet=json) as bar:
        report = check_years(source, box_order=order, workers=workers, on_progress=bar.show)
    if json:
        typer.echo(report.to_json(), nl=False)
    else:
        _show_report(report)
    pack_it = _pack_command(source, sorted(report.years), order)
    if not report.ok:
        skipped = bool(report.bad_frames) + bool(report.bad_boxes)  # all else stays as it is
        suffices = skipped == len(report.problems) and _every_split_is_readable(report)
        raise CheckFailed(
            f"{shell_path(source)} is not ok: {'; '.join(report.problems)}",
            hint="fix what is listed above"
            + (f", or {pack_it} --policy skip" if pack_it and suffices else ""),
        )
    if not json:
        print("no errors")
        if pack_it is not None:
            next_step(pack_it, "pack it for fast reading")


def _every_split_is_readable(report: ClimateReport) -> bool:
    """Whether each split of the proposed command keeps a frame if bad ones are left out."""
    reference = report.reference_split
    splits = list(reference.values()) if reference else [(year,) for year in report.years]
    return all(any(report.years[year].readable for year in years) for years in splits)


def _pack_command(source: Path, years: Sequence[int], order: Order | None) -> str | None:
    """Return the command that packs these years; None for one year, which cannot be split."""
    from vflops.cli.terminal.console import shell_path
    from vflops.data.climate.year_split import two_year_options

    if len(years) < 2:
        return None
    words = ["vflops data pack", shell_path(source)]
    words += [f"--box-order {order}"] if order else []
    return " ".join(words + ([two_year_options(years)] if len(years) == 2 else []))


def pack(
    source: Path,
    destination: Path | None,
    layout: Layout,
    chosen_years: dict[str, str | None],
    order: Order | None,
    policy: Policy,
    workers: int | None,
) -> None:
    """Pack all years into shards of frames."""
    from vflops.cli.terminal.console import next_step, working
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.climate.pack_years import bytes_needed
    from vflops.data.climate.pack_years import pack as pack_years
    from vflops.data.climate.years import ClimateYears

    with working("reading the boxes"):
        folder = ClimateYears.open(source, order)
    split = _split(folder, chosen_years)
    target = destination or default_destination(source, layout)
    print_destination(target, bytes_needed(folder, split, layout))
    with Bar("frames packed") as bar:
        packed = pack_years(
            folder,
            target,
            layout=layout,
            split=split,
            workers=workers,
            policy=policy,
            on_progress=bar.show,
        )
    _show_packed(packed)
    next_step(*training_command(target))


def _split(folder: ClimateYears, chosen_years: dict[str, str | None]) -> YearSplit:
    from vflops.data.climate.year_split import parse_years, split_years

    train, validation, test = (
        None if chosen_years[name] is None else parse_years(str(chosen_years[name]))
        for name in ("train", "validation", "test")
    )
    return split_years(folder.path, folder.numbers, train=train, validation=validation, test=test)


def training_command(packed: Path) -> tuple[str, str]:
    """Return the next command after packing, and what it does."""
    from vflops.cli.terminal.console import shell_path

    command = f"vflops run extreme-weather --data {shell_path(packed)} --set target=0.35"
    return command, "train a detector to the mAP of the rules"


def _show_packed(packed: PackedFrames) -> None:
    from vflops.data.climate.frame_index import SPLITS
    from vflops.units import count

    for name in (name for name in SPLITS if name in packed.index.splits):
        split = packed.index.splits[name]
        size = sum(shard.bytes for shard in split.shards)
        years = _years_text(packed.index.years[name])
        left_out_count = len(split.left_out)
        left_out = f", {count(left_out_count, 'frame')} left out" if left_out_count else ""
        mended = f", {count(len(split.mended), 'box', 'boxes')} mended" if split.mended else ""
        shards = shards_text(len(split.shards), size)
        print(
            f"{name:10}  {years}: {count(split.frames, 'frame')} with "
            f"{count(split.boxes, 'box', 'boxes')} in {shards}{left_out}{mended}"
        )
        for faults in (split.left_out, split.mended):
            print_lines([f"{fault.file}, frame {fault.frame}: {fault.reason}" for fault in faults])
    for note in _missing_classes(packed):
        print(f"note: {printable(note)}")
    split_name = "the reference split" if packed.index.reference_split else "your own split"
    print(f"split       {split_name}")
    print_hashes(packed)


def _missing_classes(packed: PackedFrames) -> list[str]:
    from vflops.data.climate.check_years import missing_class_notes

    present = set(packed.split("validation").labels.flat)
    return missing_class_notes(
        [name for number, name in enumerate(packed.index.classes) if number not in present]
    )


def _years_text(years: tuple[int, ...]) -> str:
    """Return ``1979-1983`` for consecutive years, else a list."""
    if len(years) > 2 and years[-1] - years[0] == len(years) - 1:
        return f"{years[0]}-{years[-1]}"
    return ", ".join(str(year) for year in years)


def _show_report(report: ClimateReport) -> None:
    from vflops.cli.terminal.columns import columns

    split_of = {
        year: name for name, years in (report.reference_split or {}).items() for year in years
    }
    rows: list[tuple[str, ...]] = [
        ("", "frames", "readable", "depress.", "cyclones", "extratr.", "rivers", "split")
    ]
    for number, year in report.years.items():
        counts = [f"{count:,}" for count in year.boxes.values()]
        frames = f"{year.frames:,}", f"{year.readable:,}"
        rows.append((year.file, *frames, *counts, split_of.get(number, "—")))
    print(columns(rows, right=(1, 2, 3, 4, 5, 6)))
    split_name = "; the reference split" if split_of else ""
    print(f"frames of {report.height}x{report.width}; boxes by class{split_name}")
    means = [
        (name, f"{statistics.mean:.4g}", f"{statistics.std:.4g}")
        for name, statistics in report.channels.items()
    ]
    print(columns([("", "mean", "std"), *means], right=(1, 2)))
    for note in report.notes:
        print(f"note: {printable(note)}")
    for faults in (report.bad_frames, report.bad_boxes):
        print_lines([f"{fault.file}, frame {fault.frame}: {fault.reason}" for fault in faults])
    print_lines(
        [
            f"{frame.file}, frame {frame.frame}: the same fields as {frame.same_file}, "
            f"frame {frame.same_frame}"
            for frame in report.repeated
        ]
    )
