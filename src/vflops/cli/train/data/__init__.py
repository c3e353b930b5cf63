"""``vflops data``: images and years of climate fields, made, checked, packed and verified."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from vflops.data.data_kind import Content
    from vflops.data.packed_folder import PackedFolder

Source = Annotated[
    Path,
    typer.Argument(
        metavar="DIR", help="Folder with train/<class>/ and val/<class>/, or with climo_YYYY.h5."
    ),
]
Made = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to make.")]
Workers = Annotated[
    int | None, typer.Option(help="Processes that work; all usable CPUs by default.", min=1)
]


class Format(StrEnum):
    """Of drawn images; PNG keeps every pixel."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"


class Policy(StrEnum):
    """What to do with an image, a frame or a box that cannot be used."""

    FAIL = "fail"
    SKIP = "skip"


class Layout(StrEnum):
    """Of packed frames."""

    HALF = "half"
    RAW = "raw"


class BoxOrder(StrEnum):
    """Columns of boxes by their first letters."""

    YXYXC = "yxyxc"
    XYXYC = "xyxyc"
    CYXYX = "cyxyx"
    CXYXY = "cxyxy"


Order = Annotated[
    BoxOrder | None,
    typer.Option(
        help="Years only: columns of the boxes, c for class; told from the values by default.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    data = typer.Typer(
        name="data", help="Make, check, pack and verify training data.", no_args_is_help=True
    )
    synth = typer.Typer(
        name="synth",
        help="Draw data that a network can learn. The same options give the same files.",
        no_args_is_help=True,
    )
    synth.command("image-classification")(synth_images)
    synth.command("extreme-weather")(synth_years)
    data.add_typer(synth)
    for command in (check, pack, verify):
        data.command()(command)
    app.add_typer(data)


def synth_images(
    folder: Made,
    classes: Annotated[int, typer.Option(help="Classes, from 2 to 10000.")] = 10,
    size: Annotated[int, typer.Option(help="Pixels of an image's side.")] = 32,
    train: Annotated[int, typer.Option(help="Images to train on.")] = 4000,
    val: Annotated[int, typer.Option(help="Images to validate with.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed gives other images.")] = 1,
    format: Annotated[Format, typer.Option(help="Of the files.")] = Format.PNG,
) -> None:
    """Draw images by class, in folders."""
    from vflops.cli.train.data import image_data

    image_data.synth(folder, classes, size, train, val, seed, format.value)


def synth_years(
    folder: Made,
    years: Annotated[int, typer.Option(help="Years, from 1979 on; a file each.", min=1)] = 3,
    frames: Annotated[int, typer.Option(help="Frames of a year.", min=1)] = 40,
    height: Annotated[int, typer.Option(help="Rows of a frame; 768 as published.")] = 96,
    width: Annotated[int, typer.Option(help="Columns of a frame; 1152 as published.")] = 144,
    seed: Annotated[int, typer.Option(help="Another seed gives other weather.")] = 1,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
) -> None:
    """Draw years of climate fields with storms in them, as climo_YYYY.h5."""
    from vflops.cli.train.data import climate_data

    climate_data.synth(folder, years, frames, height, width, seed, gzip)


def check(
    source: Source,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    workers: Workers = None,
    box_order: Order = None,
) -> None:
    """Read all data of a folder and report what is wrong.

    Images: unreadable or empty files, classes that do not match, images of val that are also in
    train. Years: damaged files, values that are not finite, impossible boxes, frames that occur in
    two years; their statistics are stored beside them.
    """
    from vflops.cli.train.data import climate_data, image_data
    from vflops.data.data_kind import source_kind

    if source_kind(source) == "years":
        climate_data.check(source, json, box_order.value if box_order else None, workers)
    else:
        _refuse(source, "images", {"--box-order": box_order})
        image_data.check(source, json, workers)


def pack(
    source: Source,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="DEST", help="Folder to make; beside the source by default."),
    ] = None,
    short_side: Annotated[
        int | None,
        typer.Option(
            help="Images only: pixels of the shorter side; 256 by default.", min=1, max=8192
        ),
    ] = None,
    layout: Annotated[
        Layout | None,
        typer.Option(
            help="Years only: half (float16, in standard units; the default) or raw (float32)."
        ),
    ] = None,
    train_years: Annotated[
        str | None,
        typer.Option(help="Years only: your own split, as 1979-1983,1985; all that is left."),
    ] = None,
    validation_years: Annotated[
        str | None, typer.Option(help="Years only: those that validate.")
    ] = None,
    test_years: Annotated[
        str | None, typer.Option(help="Years only: those that test; none, with an own split.")
    ] = None,
    box_order: Order = None,
    policy: Annotated[
        Policy, typer.Option(help="At an image, frame or box that cannot be used: fail, or skip.")
    ] = Policy.FAIL,
    workers: Workers = None,
) -> None:
    """Pack images or years into shards. These are read as fast as the storage allows.

    Of the years the last one is for testing, the one before it for validation and the others for
    training, unless you name others. If packing is interrupted, the same command resumes it.
    """
    from vflops.cli.train.data import climate_data, image_data
    from vflops.data.data_kind import source_kind

    split = {"train": train_years, "validation": validation_years, "test": test_years}
    if source_kind(source) == "images":
        named = {f"--{name}-years": value for name, value in split.items()}
        _refuse(source, "images", {"--layout": layout, "--box-order": box_order, **named})
        side = short_side or image_data.SHORT_SIDE
        image_data.pack(source, destination, side, policy.value, workers)
        return
    _refuse(source, "years", {"--short-side": short_side})
    climate_data.pack(
        source,
        destination,
        layout.value if layout else "half",
        split,
        box_order.value if box_order else None,
        policy.value,
        workers,
    )


def verify(
    packed: Annotated[
        Path, typer.Argument(metavar="PACKED", help="Folder that vflops data pack made.")
    ],
) -> None:
    """Check the hash of every file of packed data."""
    from vflops.cli.terminal.console import next_step, shown
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.cli.train.data import climate_data, image_data
    from vflops.data.data_kind import packed_kind
    from vflops.units import quantity

    folder: PackedFolder[Any]
    if packed_kind(packed) == "images":
        from vflops.data.images.packed_images import PackedImages

        folder, training = PackedImages.open(packed), image_data.training(packed)
    else:
        from vflops.data.climate.packed_frames import PackedFrames

        folder, training = PackedFrames.open(packed), climate_data.training(packed)
    with Bar("bytes read") as bar:
        size = folder.verify(bar.show)
    print(f"{shown(packed)} is whole: {quantity(size, 'B')} read, every hash as packed")
    next_step(*training)


def _refuse(source: Path, content: Content, given: dict[str, object]) -> None:
    """An error for options of the other kind of data."""
    from vflops.data.data_kind import CONTENT_NAMES
    from vflops.errors import UsageError

    wrong = [name for name, value in given.items() if value is not None]
    if wrong:
        other: Content = "years" if content == "images" else "images"
        raise UsageError(
            f"{', '.join(wrong)}: an option for {CONTENT_NAMES[other]}, and {source} holds "
            f"{CONTENT_NAMES[content]}",
            hint="leave it out",
        )
