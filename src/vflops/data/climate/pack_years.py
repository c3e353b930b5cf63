"""Packs years: read once in the files' order, laid down so that reading a frame is a copy.

Which frames make a shard follows from the files alone, so each is made whole by one worker, a
finished one is never made again, and the bytes do not depend on how many work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.climate import channel_statistics
from vflops.data.climate.box_rows import mended
from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_encoding import Storing, storing
from vflops.data.climate.frame_index import Layout, LeftOut, Part, Split, aligned, frame_bytes
from vflops.data.climate.frame_shards import Policy, ShardTask, make_shard, plan
from vflops.data.climate.frame_source import Unreadable
from vflops.data.climate.frame_writer import make_index, refuse_constant, write_split
from vflops.data.climate.moments import FILL, Moments, of_frame
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.scan import workers_for
from vflops.data.climate.year_split import YearSplit, split_years
from vflops.data.climate.years import ClimateYears, Year
from vflops.data.packed import Packing, digest, drawn_from
from vflops.data.process_pool import OnProgress, all_of, silent
from vflops.data.workspace import Workspace, free_bytes, occupied, refuse_fixed
from vflops.errors import UsageError, VflopsError
from vflops.units import quantity

_SAMPLE_FRAMES = 8
"""Frames of training that give the units of the half layout: near mean and spread will do. More
are read while some cannot be used, or while a channel has one value in all of them."""


def pack(
    source: Path | ClimateYears,
    place: Path,
    *,
    layout: Layout = "half",
    split: YearSplit | None = None,
    workers: int | None = None,
    policy: Policy = "fail",
    on_progress: OnProgress = silent,
) -> PackedFrames:
    """The years of ``source`` packed into ``place``; what is done already is kept."""
    folder = source if isinstance(source, ClimateYears) else ClimateYears.open(source)
    chosen = split or split_years(folder.path, folder.numbers)
    used = [folder.year(year) for years in chosen.by_name.values() for year in years]
    settings = {"layout": layout, "years": {k: list(v) for k, v in chosen.by_name.items()}}
    workspace = Workspace(place, Packing(source=str(folder.path.resolve()), settings=settings))
    if policy == "fail":
        _refuse_bad_boxes(folder, chosen)
    if occupied(place):
        workspace.refuse_another("years", lambda: _identity(folder, chosen, settings))
        return _without_gaps(PackedFrames.open(place), policy)
    refuse_fixed(workspace.destination)
    _refuse_want_of_room(folder, chosen, layout, workspace)
    with workspace.locked():
        how = units(folder, chosen.train, layout)
        tasks = plan(folder, chosen, how, policy)
        parts = all_of(
            make_shard,
            [(task, workspace) for task in tasks],
            workers=workers or workers_for(used),
            total=sum(task.stop - task.start for task in tasks),
            on_progress=on_progress,
            done="shards are packed",
        )
        for year in used:
            year.source.refuse_changed()  # since its shards were made, now or by a packing before
        _finish(workspace, folder, chosen, how, list(zip(tasks, parts, strict=True)), settings)
    return PackedFrames.open(place)


def units(folder: ClimateYears, train: Sequence[int], layout: Layout) -> Storing:
    """How values are stored: ``half`` as deviations from a mean that a few frames give."""
    height, width = folder.height, folder.width
    zeros, any_value = np.zeros(len(CHANNELS)), np.full(len(CHANNELS), FILL)
    if layout == "raw":
        return storing(height, width, layout, zeros, any_value)
    enough = min(_SAMPLE_FRAMES, sum(folder.year(year).frames for year in train))
    seen, summary = 0, None
    for year, frame in _sample(folder, train):
        with suppress(Unreadable):  # the packing itself will say so
            moments = of_frame(year.source.frame(frame))
            if moments.usable.all():
                seen, summary = seen + 1, summary.joined(moments) if summary else moments
        if summary is not None and seen >= enough and (summary.std > 0).all():
            break
    if summary is None:  # the packing itself will say so
        return storing(height, width, layout, zeros, any_value)
    refuse_constant(str(folder.path), summary)  # all frames were read to find no other value
    return storing(height, width, layout, summary.mean, summary.std)


def _sample(folder: ClimateYears, train: Sequence[int]) -> Iterator[tuple[Year, int]]:
    """All training frames: a few far apart first, then ever closer ones between them."""
    years = [folder.year(number) for number in train]
    ends = np.cumsum([year.frames for year in years])
    total = int(ends[-1])
    taken: set[int] = set()
    number = _SAMPLE_FRAMES
    while len(taken) < total:
        number = min(number, total)
        for place in (np.arange(number) * total // number).tolist():
            if place not in taken:
                taken.add(place)
                which = int(np.searchsorted(ends, place, side="right"))
                yield years[which], place - (int(ends[which]) - years[which].frames)
        number *= 2


def _finish(
    workspace: Workspace,
    folder: ClimateYears,
    split: YearSplit,
    how: Storing,
    made: Sequence[tuple[ShardTask, Part]],
    settings: dict[str, Any],
) -> None:
    moments = _by_year(made, how)
    train = [moments[number] for number in split.train if number in moments]
    splits = {}
    for name in split.by_name:
        splits[name] = _split(workspace.path, folder, name, made)
        if not splits[name].frames:
            raise UsageError(
                f"no frame of {name} can be used",
                hint=f"see why: vflops data check {folder.path}",
            )
        if not splits[name].boxes and name != "test":
            raise UsageError(
                f"{name} has no box in any of the {splits[name].frames:,} frames that can be used",
                hint="nothing can be learnt or judged by them: name other years for it, or mend "
                f"what is wrong: vflops data check {folder.path}",
            )
    summary = channel_statistics.joined(train)
    refuse_constant(str(folder.path), summary)
    recipe = drawn_from(folder.path)
    index = make_index(
        how,
        summary,
        splits,
        origin=folder.path.resolve().name,
        synthetic=recipe is not None,
        recipe=recipe,
        years=split.all,
        reference_split=split.reference,
    )
    whole = {task.year for task, _ in made} - {task.year for task, part in made if part.left_out}
    with suppress(VflopsError):  # a gift to who reads the years next: not what was asked for
        channel_statistics.keep(folder, {year: moments[year] for year in sorted(whole)})
    workspace.finish(index, _identity(folder, split, settings))


def _by_year(made: Sequence[tuple[ShardTask, Part]], how: Storing) -> dict[int, Moments]:
    rows: dict[int, list[Part]] = {}
    for task, part in made:
        if part.frames:
            rows.setdefault(task.year, []).append(part)
    return {
        year: Moments(
            how.height * how.width,
            np.array([mean for part in parts for mean in part.mean]),
            np.array([squares for part in parts for squares in part.squares]),
        ).pooled(0)
        for year, parts in rows.items()
    }


def _split(
    path: Path, folder: ClimateYears, name: str, made: Sequence[tuple[ShardTask, Part]]
) -> Split:
    rows, notes = [], []
    ours = [(task, part) for task, part in made if task.split == name]
    for task, part in ours:
        year = folder.year(task.year)
        for frame in part.frames:
            kept, wrong = mended(year.boxes(frame), folder.height, folder.width)
            rows.append(kept)
            notes += [LeftOut(file=year.name, frame=frame, reason=reason) for reason in wrong]
    left_out = [one for _, part in ours for one in part.left_out]
    return write_split(path, name, rows, [part.shard for _, part in ours], left_out, notes)


def _refuse_bad_boxes(folder: ClimateYears, split: YearSplit) -> None:
    for number in (year for years in split.by_name.values() for year in years):
        year = folder.year(number)
        for frame in range(year.frames):
            _, wrong = mended(year.boxes(frame), folder.height, folder.width)
            if wrong:
                reason = wrong[0].rpartition(": ")[0]
                raise UsageError(
                    f"cannot use {year.path}: frame {frame}: {reason}",
                    hint="mend the file, or cut such boxes at the edge and drop those without "
                    f"area with --policy skip; all of them: vflops data check {folder.path}",
                )


def room_needed(folder: ClimateYears, split: YearSplit, layout: Layout) -> int:
    """How many bytes the packed frames will take."""
    frames = sum(folder.year(year).frames for years in split.by_name.values() for year in years)
    return frames * aligned(frame_bytes(folder.height, folder.width, layout))


def _refuse_want_of_room(
    folder: ClimateYears, split: YearSplit, layout: Layout, workspace: Workspace
) -> None:
    done = sum(path.stat().st_size for path in workspace.path.glob("*.bin"))
    needed = room_needed(folder, split, layout) - done
    free = free_bytes(workspace.path)
    if needed > free:
        less = "take half the room with --layout half, or " if layout == "raw" else ""
        raise UsageError(
            f"{workspace.destination} needs {quantity(needed, 'B')}, {quantity(free, 'B')} are "
            "free there",
            hint=f"{less}choose a place with more room: vflops data pack {folder.path} DEST",
        )


def _identity(folder: ClimateYears, split: YearSplit, settings: dict[str, Any]) -> str:
    return digest([source_identity(folder, split), settings])


def source_identity(folder: ClimateYears, split: YearSplit) -> list[Any]:
    """By which the source of a packing is taken for the same: where it is, and each file.

    Names, sizes and times alone are not enough: files without compression all have one size, and
    copies of other experiments often one time.
    """
    years = [folder.year(year).identity() for of in split.by_name.values() for year in of]
    return [str(folder.path.resolve()), *years]


def _without_gaps(frames: PackedFrames, policy: Policy) -> PackedFrames:
    """A packing that left frames out is none for who wants them all."""
    left = [one for split in frames.index.splits.values() for one in split.left_out]
    if left and policy == "fail":
        raise UsageError(
            f"{frames.path} was packed without {len(left)} frames that cannot be used, "
            f"{left[0].file} frame {left[0].frame} first: {left[0].reason}",
            hint="mend them and pack into another place, or take it as it is: --policy skip",
        )
    return frames
