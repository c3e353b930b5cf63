"""``vflops data``: images checked, packed and verified before a run reads them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vflops.data.images.check import DataReport
    from vflops.data.images.shards import PackedImages

_MOST_LINES = 20
"""Of one kind of fault; --json has them all."""

Source = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with train/<class>/ and val/<class>/.")
]
Workers = Annotated[
    int | None, typer.Option(help="Processes that decode; all usable CPUs by default.", min=1)
]


class Workload(StrEnum):
    """Whose data can be drawn."""

    IMAGE_CLASSIFICATION = "image-classification"


class Format(StrEnum):
    """Of drawn images; PNG keeps every pixel."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"


class Policy(StrEnum):
    """What to do with an image that cannot be decoded."""

    FAIL = "fail"
    SKIP = "skip"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    data = typer.Typer(
        name="data", help="Make, check, pack and verify training data.", no_args_is_help=True
    )
    for command in (synth, check, pack, verify):
        data.command()(command)
    app.add_typer(data)


def synth(
    workload: Annotated[Workload, typer.Argument(help="What the data is for.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")],
    classes: Annotated[int, typer.Option(help="Classes, from 2 to 10000.")] = 10,
    size: Annotated[int, typer.Option(help="Pixels of an image's side.")] = 32,
    train: Annotated[int, typer.Option(help="Images to train on.")] = 4000,
    val: Annotated[int, typer.Option(help="Images to validate with.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed gives other images.")] = 1,
    format: Annotated[Format, typer.Option(help="Of the files.")] = Format.PNG,
) -> None:
    """Draw images that a network can learn: the same files for the same options."""
    from vflops.cli.bar import Bar
    from vflops.cli.console import next_step, shown
    from vflops.data.images.drawing import Recipe
    from vflops.data.images.synthetic import write_folder

    recipe = Recipe(classes=classes, size=size, seed=seed)
    with Bar("images drawn") as bar:
        write_folder(recipe, folder, train, val, format.value, bar.show)
    print(f"{shown(folder)}: {train:,} images to train on, {val:,} to validate with")
    next_step(f"vflops data check {shown(folder)}", "is it all there, and can it be read")


def check(
    source: Source,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    workers: Workers = None,
) -> None:
    """Decode every image, and name what is wrong.

    Unreadable or empty files, classes that do not match, images of val that are also in train.
    """
    from vflops.cli.bar import Bar
    from vflops.cli.console import next_step, shown, working
    from vflops.data.images.check import check as check_images
    from vflops.data.images.folder import ImageFolder
    from vflops.errors import CheckFailed

    with working("listing the images"):
        folder = ImageFolder.open(source)
    with Bar("images checked", quiet=json) as bar:
        report = check_images(folder, workers=workers, on_progress=bar.show)
    if json:
        typer.echo(report.to_json(), nl=False)
    else:
        _show_report(report)
    if not report.ok:
        faults = len(report.unreadable) + len(report.zero_byte)
        raise CheckFailed(
            f"{shown(source)} is not ok: {'; '.join(report.problems)}",
            cure="mend what is named above"
            + (f", or vflops data pack {shown(source)} --policy skip" if faults else ""),
        )
    if not json:
        next_step(f"vflops data pack {shown(source)}", "so that reading never holds up training")


def pack(
    source: Source,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="DEST", help="Folder to make; beside the source by default."),
    ] = None,
    short_side: Annotated[
        int, typer.Option(help="Pixels of an image's shorter side.", min=1, max=8192)
    ] = 256,
    policy: Annotated[
        Policy, typer.Option(help="At an unreadable image: fail, or skip it.")
    ] = Policy.FAIL,
    workers: Workers = None,
) -> None:
    """Decode and resize all images into shards.

    Stopped or killed, the same command goes on where it was.
    """
    from vflops.cli.bar import Bar
    from vflops.cli.console import next_step, say, shown, working
    from vflops.data.images.folder import ImageFolder
    from vflops.data.images.pack import free_bytes, room_needed
    from vflops.data.images.pack import pack as pack_images
    from vflops.units import quantity

    with working("listing the images"):
        folder = ImageFolder.open(source)
    place = destination or default_destination(source, short_side)
    room = quantity(room_needed(folder, short_side), "B", digits=2)
    free = quantity(free_bytes(place), "B", digits=2)
    say(f"packing into {shown(place)}: about {room} in all, {free} free there")
    with Bar("images packed") as bar:
        packed = pack_images(
            folder,
            place,
            short_side=short_side,
            workers=workers,
            policy=policy.value,
            on_progress=bar.show,
        )
    _show_packed(packed)
    next_step(_training(place), "train on them, to the accuracy that you want")


def verify(
    packed: Annotated[
        Path, typer.Argument(metavar="PACKED", help="Folder that vflops data pack made.")
    ],
) -> None:
    """Hash every file of packed images: are they still what was packed?"""
    from vflops.cli.bar import Bar
    from vflops.cli.console import next_step, shown
    from vflops.data.images.shards import PackedImages
    from vflops.units import quantity

    images = PackedImages.open(packed)
    with Bar("bytes read") as bar:
        size = images.verify(bar.show)
    print(f"{shown(packed)} is whole: {quantity(size, 'B')} read, every hash as packed")
    next_step(_training(packed), "train on them, to the accuracy that you want")


def _training(packed: Path) -> str:
    from vflops.cli.console import shown

    return f"vflops run image-classification --data {shown(packed)} --set target=0.8"


def default_destination(source: Path, short_side: int) -> Path:
    """Beside the source: ``imagenet`` goes to ``imagenet-packed-256``."""
    whole = source.resolve() if source.name in ("", "..") else source
    return whole.with_name(f"{whole.name}-packed-{short_side}")


def _show_packed(packed: PackedImages) -> None:
    from vflops.units import quantity

    for name, split in packed.index.splits.items():
        size = quantity(sum(shard.bytes for shard in split.shards), "B")
        shards = f"{len(split.shards):,} shard{'s' * (len(split.shards) != 1)}"
        left_out = f", {len(split.skipped):,} left out" if split.skipped else ""
        print(f"{name:5}  {split.images:,} images in {shards}, {size}{left_out}")
        _show_lines([f"{one.file}: {one.reason}" for one in split.skipped])
    print(f"fingerprint  {packed.fingerprint}")


def _show_report(report: DataReport) -> None:
    from vflops.cli.columns import columns

    rows = [("", "images", "readable", "classes", "width", "height", "modes")]
    for name, split in report.splits.items():
        width, height = (
            f"{size.min} – {size.median} – {size.max}" if size else "—"
            for size in (split.width, split.height)
        )
        modes = ", ".join(f"{mode} {count:,}" for mode, count in split.modes.items())
        classes = sum(count > 0 for count in split.by_class.values())
        images = f"{split.images:,}", f"{split.readable:,}", f"{classes:,}"
        rows.append((name, *images, width, height, modes or "—"))
    print(columns(rows, right=(1, 2, 3)))
    print("sizes in pixels: smallest – middle – largest")
    for note in report.notes:
        print(f"note: {note}")
    _show_lines([f"{one.file}: {one.reason}" for one in report.unreadable])
    _show_lines([f"{file}: the file is empty" for file in report.zero_byte])
    _show_lines([f"train/{name}: no image" for name in report.empty_classes])
    _show_lines([f"val/{name}: train has no such class" for name in report.only_in_val])
    _show_lines([f"{leak.val}: the same bytes as {leak.train}" for leak in report.leaks])


def _show_lines(lines: list[str]) -> None:
    for line in lines[:_MOST_LINES]:
        print(f"  {line}")
    if len(lines) > _MOST_LINES:
        print(f"  … and {len(lines) - _MOST_LINES:,} more")
