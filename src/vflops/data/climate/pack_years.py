"""Pack years of climate fields: encode them once, so that reading them later is only a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from vflops.data.climate import channel_statistics
from vflops.data.climate.box_rows import repair_boxes
from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_encoding import FrameEncoding, frame_encoding
from vflops.data.climate.frame_index import (
    FramePart,
    Layout,
    LeftOut,
    align,
    frame_bytes,
)
from vflops.data.climate.frame_shards import FrameShardTask, make_shard, plan
from vflops.data.climate.frame_source import Unreadable
from vflops.data.climate.frame_writer import (
    WrittenSplit,
    make_index,
    require_varying_channels,
    write_split,
)
from vflops.data.climate.moments import FILL, Moments, frame_moments
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.scan import workers_for
from vflops.data.climate.year_split import YearSplit, split_years
from vflops.data.climate.years import ClimateYears, Year
from vflops.data.destination import free_bytes, is_occupied, require_replaceable
from vflops.data.duplicates import Sample, find_duplicates
from vflops.data.packed_index import PackingRecord, digest
from vflops.data.packing import Policy, check_omissions, group_by_split, make_shards
from vflops.data.process_pool import OnProgress, no_progress
from vflops.data.synthetic_folder import recipe_of
from vflops.data.workspace import Workspace
from vflops.errors import Hint, UsageError, VflopsError
from vflops.record.formats.job import Duplicates
from vflops.units import quantity

_SAMPLE_FRAMES = 8
"""Training frames from which the units of the half layout are estimated. More are read if some of
them cannot be used, or if a channel has only one value in all of them."""


def pack(
    source: Path | ClimateYears,
    destination: Path,
    *,
    layout: Layout = "half",
    split: YearSplit | None = None,
    workers: int | None = None,
    policy: Policy = "fail",
    on_progress: OnProgress = no_progress,
) -> PackedFrames:
    """Pack the years of ``source`` into ``destination``; finished shards are kept."""
    folder = source if isinstance(source, ClimateYears) else ClimateYears.open(source)
    chosen = split or split_years(folder.path, folder.numbers)
    used_years = [folder.year(year) for years in chosen.by_name.values() for year in years]
    settings = {"layout": layout, "years": {k: list(v) for k, v in chosen.by_name.items()}}
    packing = PackingRecord(source=str(folder.path.resolve()), settings=settings)
    workspace = Workspace(destination, packing)
    if policy == "fail":
        _check_boxes(folder, chosen)
    if is_occupied(destination):
        workspace.require_same_packing("years", lambda: _identity(folder, chosen, settings))
        return _packed_before(workspace.destination, policy)
    require_replaceable(workspace.destination)
    _require_free_space(folder, chosen, layout, workspace)
    with workspace.locked():
        encoding = choose_encoding(folder, chosen.train, layout)
        tasks = plan(folder, chosen, encoding, policy)
        parts = make_shards(
            make_shard,
            tasks,
            workspace,
            workers=workers or workers_for(used_years),
            on_progress=on_progress,
        )
        for year in used_years:
            year.source.require_unchanged()  # since its shards were written, now or earlier
        _finish(workspace, folder, chosen, encoding, tasks, parts, settings)
    return PackedFrames.open(destination)


def choose_encoding(folder: ClimateYears, train: Sequence[int], layout: Layout) -> FrameEncoding:
    """Return how to store values; offset and scale of ``half`` are estimated from a few frames."""
    height, width = folder.height, folder.width
    zeros, any_value = np.zeros(len(CHANNELS)), np.full(len(CHANNELS), FILL)
    if layout == "raw":
        return frame_encoding(height, width, layout, zeros, any_value)
    enough = min(_SAMPLE_FRAMES, sum(folder.year(year).frames for year in train))
    seen, summary = 0, None
    for year, frame in _sample(folder, train):
        with suppress(Unreadable):  # packing the frame will report it
            moments = frame_moments(year.source.frame(frame))
            if moments.usable.all():
                seen, summary = seen + 1, summary.merged(moments) if summary else moments
        if summary is not None and seen >= enough and (summary.std > 0).all():
            break
    if summary is None:  # packing will report it
        return frame_encoding(height, width, layout, zeros, any_value)
    require_varying_channels(str(folder.path), summary)  # all frames were read to find variation
    return frame_encoding(height, width, layout, summary.mean, summary.std)


def _sample(folder: ClimateYears, train: Sequence[int]) -> Iterator[tuple[Year, int]]:
    """Yield all training frames: first a few that are far apart, then the ones in between."""
    years = [folder.year(year) for year in train]
    ends = np.cumsum([year.frames for year in years])
    total = int(ends[-1])
    taken: set[int] = set()
    count = _SAMPLE_FRAMES
    while len(taken) < total:
        count = min(count, total)
        for position in (np.arange(count) * total // count).tolist():
            if position not in taken:
                taken.add(position)
                index = int(np.searchsorted(ends, position, side="right"))
                yield years[index], position - (int(ends[index]) - years[index].frames)
        count *= 2


def _finish(
    workspace: Workspace,
    folder: ClimateYears,
    split: YearSplit,
    encoding: FrameEncoding,
    tasks: Sequence[FrameShardTask],
    parts: Sequence[FramePart],
    settings: dict[str, Any],
) -> None:
    moments = _moments_by_year(tasks, parts, encoding)
    train = [moments[number] for number in split.train if number in moments]
    splits = {}
    made = list(zip(tasks, parts, strict=True))
    for name, shards in group_by_split(split.by_name, tasks, made).items():
        splits[name] = _write_split(workspace.path, folder, name, shards)
        entry = splits[name].entry
        if not entry.frames:
            raise UsageError(
                f"no frame of {name} can be used",
                hint=Hint("see why", f"vflops data check {folder.path}"),
            )
        if not entry.boxes and name != "test":
            raise UsageError(
                f"{name} has no box in any of the {entry.frames:,} frames that can be used",
                hint="nothing can be learned or evaluated without boxes: choose other years, or "
                f"repair what is wrong: vflops data check {folder.path}",
            )
    summary = channel_statistics.merge(train)
    require_varying_channels(str(folder.path), summary)
    recipe = recipe_of(folder.path)
    index = make_index(
        encoding,
        summary,
        splits,
        origin=folder.path.resolve().name,
        synthetic=recipe is not None,
        recipe=recipe,
        years=split.all,
        reference_split=split.reference,
        duplicates=_duplicates(folder, made) if recipe is None else None,
    )
    with_gaps = {task.year for task, part in made if part.left_out}
    complete = {task.year for task in tasks} - with_gaps
    with suppress(VflopsError):  # statistics save time later, but packing does not need them
        channel_statistics.store(folder, {year: moments[year] for year in sorted(complete)})
    workspace.finish(index, _identity(folder, split, settings))


def _duplicates(
    folder: ClimateYears, made: Sequence[tuple[FrameShardTask, FramePart]]
) -> Duplicates:
    """Return the frames for validation and testing that are also in the training years."""
    train: list[Sample] = []
    evaluated: list[Sample] = []
    for task, part in made:
        samples = train if task.split == "train" else evaluated
        name = folder.year(task.year).name
        for frame, content in zip(part.frames, part.digests, strict=True):
            samples.append(Sample(f"{name} frame {frame}", content))
    return find_duplicates(train, evaluated).summary()


def _moments_by_year(
    tasks: Sequence[FrameShardTask], parts: Sequence[FramePart], encoding: FrameEncoding
) -> dict[int, Moments]:
    by_year: dict[int, list[FramePart]] = {}
    for task, part in zip(tasks, parts, strict=True):
        if part.frames:
            by_year.setdefault(task.year, []).append(part)
    return {
        year: Moments(
            encoding.height * encoding.width,
            np.array([mean for part in year_parts for mean in part.mean]),
            np.array([squares for part in year_parts for squares in part.squares]),
        ).pooled(0)
        for year, year_parts in by_year.items()
    }


def _write_split(
    path: Path, folder: ClimateYears, name: str, shards: Sequence[tuple[FrameShardTask, FramePart]]
) -> WrittenSplit:
    rows, notes = [], []
    for task, part in shards:
        year = folder.year(task.year)
        for frame in part.frames:
            boxes, faults = repair_boxes(year.boxes(frame), folder.height, folder.width)
            rows.append(boxes)
            notes += [LeftOut(file=year.name, frame=frame, reason=fault) for fault in faults]
    left_out = [frame for _, part in shards for frame in part.left_out]
    digests = [content for _, part in shards for content in part.digests]
    entries = [part.shard for _, part in shards]
    return write_split(path, name, rows, entries, digests, left_out, notes)


def _check_boxes(folder: ClimateYears, split: YearSplit) -> None:
    for number in (year for years in split.by_name.values() for year in years):
        year = folder.year(number)
        for frame in range(year.frames):
            _, faults = repair_boxes(year.boxes(frame), folder.height, folder.width)
            if faults:
                reason = faults[0].rpartition(": ")[0]
                raise UsageError(
                    f"cannot use {year.path}: frame {frame}: {reason}",
                    hint="repair the file, or clip such boxes at the edge and drop those without "
                    f"area with --policy skip; to list them: vflops data check {folder.path}",
                )


def bytes_needed(folder: ClimateYears, split: YearSplit, layout: Layout) -> int:
    """Return the size of the packed frames."""
    frames = sum(folder.year(year).frames for years in split.by_name.values() for year in years)
    return frames * align(frame_bytes(folder.height, folder.width, layout))


def _require_free_space(
    folder: ClimateYears, split: YearSplit, layout: Layout, workspace: Workspace
) -> None:
    done = sum(path.stat().st_size for path in workspace.path.glob("*.bin"))
    needed = bytes_needed(folder, split, layout) - done
    free = free_bytes(workspace.path)
    if needed > free:
        less = "halve the size with --layout half, or " if layout == "raw" else ""
        raise UsageError(
            f"{workspace.destination} needs {quantity(needed, 'B')}, but only "
            f"{quantity(free, 'B')} are free there",
            hint=Hint(
                f"{less}choose a disk with more space", f"vflops data pack {folder.path} DEST"
            ),
        )


def _identity(folder: ClimateYears, split: YearSplit, settings: dict[str, Any]) -> str:
    return digest([source_identity(folder, split), settings])


def source_identity(folder: ClimateYears, split: YearSplit) -> list[Any]:
    """Return what identifies the source of a packing: its path, and the identity of each file.

    Names, sizes and times alone are not enough: uncompressed files all have the same size, and
    copies of other experiments often the same time.
    """
    identities = [
        folder.year(year).identity() for years in split.by_name.values() for year in years
    ]
    return [str(folder.path.resolve()), *identities]


def _packed_before(path: Path, policy: Policy) -> PackedFrames:
    """Open a packing that is already there; raise ``UsageError`` if it lacks required frames."""
    frames = PackedFrames.open(path)
    omitted = [
        f"{frame.file} frame {frame.frame}: {frame.reason}"
        for split in frames.index.splits.values()
        for frame in split.left_out
    ]
    check_omissions(path, omitted, "frames", policy)
    return frames
