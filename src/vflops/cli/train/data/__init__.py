"""``vflops data``: makes, checks, packs and verifies images, years of climate fields and text."""

from __future__ import annotations

from collections.abc import Mapping
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
        metavar="DIR",
        help="Folder with train/<class>/ and val/<class>/, with climo_YYYY.h5, with text files or "
        "with .bin shards of tokens.",
    ),
]
NewFolder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create.")]
Workers = Annotated[
    int | None, typer.Option(help="Number of processes; by default one per usable CPU.", min=1)
]


class Format(StrEnum):
    """File formats of drawn images; PNG is lossless."""

    PNG = "png"
    JPEG = "jpeg"
    WEBP = "webp"


class Policy(StrEnum):
    """What to do with an image, a frame, a box or a document that cannot be used."""

    FAIL = "fail"
    SKIP = "skip"


class Layout(StrEnum):
    """Layouts of packed frames."""

    HALF = "half"
    RAW = "raw"


class BoxOrder(StrEnum):
    """Orders of the columns of boxes, by first letters."""

    YXYXC = "yxyxc"
    XYXYC = "xyxyc"
    CYXYX = "cyxyx"
    CXYXY = "cxyxy"


Order = Annotated[
    BoxOrder | None,
    typer.Option(
        help="Years only: order of the boxes' columns, c for class; by default detected.",
    ),
]


Separator = Annotated[
    str | None,
    typer.Option(
        help="Text only: divide text files into documents at this text, for example "
        "'<|endoftext|>' or '\\n\\n'; by default a file is one document.",
    ),
]
Field = Annotated[
    str | None,
    typer.Option(help="Text only: the field of a JSONL line with the text; by default text."),
]
Vocabulary = Annotated[
    int | None,
    typer.Option(
        help="Tokens only: size of the vocabulary; by default that of GPT-2 or Llama 3, according "
        "to the shards.",
        min=2,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    data = typer.Typer(
        name="data", help="Synthesise, check, pack and verify training data.", no_args_is_help=True
    )
    synth = typer.Typer(
        name="synth",
        help="Draw data that a network can learn. The same options give the same files.",
        no_args_is_help=True,
    )
    synth.command("image-classification")(synth_images)
    synth.command("extreme-weather")(synth_years)
    synth.command("language-model")(synth_text)
    data.add_typer(synth)
    for command in (check, pack, verify):
        data.command()(command)
    app.add_typer(data)


def synth_images(
    folder: NewFolder,
    classes: Annotated[int, typer.Option(help="Number of classes, 2 to 10000.")] = 10,
    size: Annotated[int, typer.Option(help="Height and width of an image in pixels.")] = 32,
    train: Annotated[int, typer.Option(help="Number of training images.")] = 4000,
    val: Annotated[int, typer.Option(help="Number of validation images.")] = 1000,
    seed: Annotated[int, typer.Option(help="Random seed of the images.")] = 1,
    format: Annotated[Format, typer.Option(help="File format.")] = Format.PNG,
) -> None:
    """Draw images, one folder per class."""
    from vflops.cli.train.data import image_data

    image_data.synth(folder, classes, size, train, val, seed, format.value)


def synth_years(
    folder: NewFolder,
    years: Annotated[
        int, typer.Option(help="Number of years from 1979 on, one file each.", min=1)
    ] = 3,
    frames: Annotated[int, typer.Option(help="Frames per year.", min=1)] = 40,
    height: Annotated[int, typer.Option(help="Rows per frame; the published data has 768.")] = 96,
    width: Annotated[
        int, typer.Option(help="Columns per frame; the published data has 1152.")
    ] = 144,
    seed: Annotated[int, typer.Option(help="Random seed of the weather.")] = 1,
    gzip: Annotated[bool, typer.Option("--gzip", help="Compress the files.")] = False,
) -> None:
    """Draw climate fields with storms. Writes one climo_YYYY.h5 per year."""
    from vflops.cli.train.data import climate_data

    climate_data.synth(folder, years, frames, height, width, seed, gzip)


def synth_text(
    folder: NewFolder,
    vocabulary: Annotated[int, typer.Option(help="Number of tokens, 48 to 1048576.")] = 256,
    train: Annotated[int, typer.Option(help="Number of training tokens, at least.")] = 1_000_000,
    val: Annotated[int, typer.Option(help="Number of validation tokens, at least.")] = 100_000,
    seed: Annotated[int, typer.Option(help="Random seed of the text.")] = 1,
) -> None:
    """Draw text whose best possible loss is known. Writes .bin shards of tokens."""
    from vflops.cli.train.data import text_data

    text_data.synth(folder, vocabulary, train, val, seed)


def check(
    source: Source,
    json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    workers: Workers = None,
    box_order: Order = None,
    separator: Separator = None,
    field: Field = None,
    vocabulary: Vocabulary = None,
) -> None:
    """Read all data of a folder and report what is wrong.

    Images: unreadable or empty files, classes that do not match, images of val that are also in
    train, images that occur in two classes. Years: damaged files, values that are not finite,
    impossible boxes, frames that occur in two years. The statistics of the years are stored next to
    them. Text: files and lines that are not UTF-8 or not JSON. Tokens: damaged shards, tokens
    beyond the vocabulary, documents of val that are also in train.
    """
    from vflops.cli.train.data import climate_data, image_data, text_data
    from vflops.data.data_kind import source_kind

    content = source_kind(source)
    _check_options(
        source,
        content,
        {
            "years": {"--box-order": box_order},
            "text": {"--separator": separator, "--field": field},
            "tokens": {"--vocabulary": vocabulary},
        },
    )
    if content == "years":
        climate_data.check(source, json, box_order.value if box_order else None, workers)
    elif content == "images":
        image_data.check(source, json, workers)
    else:
        text_data.check(source, content, json, workers, separator, field, vocabulary)


def pack(
    source: Source,
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="DEST", help="Folder to create; by default next to the source."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="Images only: the profile to pack for: tiny, laptop, gpu, reference or aiperf; by "
            "default gpu with an accelerator, else laptop."
        ),
    ] = None,
    short_side: Annotated[
        int | None,
        typer.Option(
            help="Images only: pixels of the shorter side, at most; by default as many as the "
            "profile trains on.",
            min=1,
            max=8192,
        ),
    ] = None,
    enlarge: Annotated[
        bool, typer.Option("--enlarge", help="Images only: enlarge smaller images, too.")
    ] = False,
    layout: Annotated[
        Layout | None,
        typer.Option(help="Years only: half (default: float16, standardised) or raw (float32)."),
    ] = None,
    train_years: Annotated[
        str | None,
        typer.Option(
            help="Years only: years for training, e.g. 1979-1983,1985; by default the rest."
        ),
    ] = None,
    validation_years: Annotated[
        str | None, typer.Option(help="Years only: years for validation.")
    ] = None,
    test_years: Annotated[
        str | None,
        typer.Option(
            help="Years only: years for testing; by default none if you choose your own split."
        ),
    ] = None,
    box_order: Order = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Text only: bytes (default), or a tokenizer.json of the library tokenizers."
        ),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(
            help="Text only: share of documents to hold out for validation; by default 0.01."
        ),
    ] = None,
    separator: Separator = None,
    field: Field = None,
    vocabulary: Vocabulary = None,
    policy: Annotated[
        Policy,
        typer.Option(
            help="What to do with an unusable image, frame, box or document: fail or skip it."
        ),
    ] = Policy.FAIL,
    workers: Workers = None,
) -> None:
    """Pack images, years or text into shards. Shards are read as fast as the storage allows.

    Images are reduced to the size that the profile trains on. By default, the last year is for
    testing, the one before it for validation and the others for training. Text is tokenized, and
    documents are held out for validation by a hash of their content. If packing is interrupted, the
    same command resumes it.
    """
    from vflops.cli.train.data import climate_data, image_data, text_data
    from vflops.data.data_kind import source_kind

    split = {"train": train_years, "validation": validation_years, "test": test_years}
    content = source_kind(source)
    _check_options(
        source,
        content,
        {
            "images": {
                "--short-side": short_side,
                "--profile": profile,
                "--enlarge": enlarge or None,
            },
            "years": {
                "--layout": layout,
                "--box-order": box_order,
                **{f"--{name}-years": value for name, value in split.items()},
            },
            "text": {
                "--tokenizer": tokenizer,
                "--validation": validation,
                "--separator": separator,
                "--field": field,
            },
            "tokens": {"--vocabulary": vocabulary},
        },
    )
    if content == "images":
        image_data.pack(
            source,
            destination,
            profile,
            short_side,
            policy.value,
            workers,
            enlarge=enlarge,
        )
        return
    if content in ("text", "tokens"):
        text_data.pack(
            source,
            content,
            destination,
            tokenizer,
            validation,
            separator,
            field,
            vocabulary,
            policy.value,
            workers,
        )
        return
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
        Path, typer.Argument(metavar="PACKED", help="Folder written by `vflops data pack`.")
    ],
) -> None:
    """Check the hash of every file and of every sample of packed data.

    Prints the content hashes, which do not depend on names and order. Data that was packed by an
    older version gets the digests of its samples.
    """
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.cli.train.data import climate_data, image_data, text_data
    from vflops.cli.train.data.data_lines import print_hashes
    from vflops.data.data_kind import packed_kind
    from vflops.units import quantity

    folder: PackedFolder[Any]
    content = packed_kind(packed)
    if content == "images":
        from vflops.data.images.packed_images import PackedImages

        folder = images = PackedImages.open(packed)
        next_command = image_data.training_command(images, packed, None)
    elif content == "tokens":
        from vflops.data.text.packed_text import PackedText

        folder = text = PackedText.open(packed)
        next_command = text_data.training_command(text, packed)
    else:
        from vflops.data.climate.packed_frames import PackedFrames

        folder, next_command = PackedFrames.open(packed), climate_data.training_command(packed)
    with Bar("bytes read") as bar:
        size = folder.verify(bar.show)
    added = folder.index.contents is None
    with Bar("samples compared") as bar:
        if added:
            folder = folder.add_contents(bar.show)
        else:
            folder.verify_contents(bar.show)
    print(f"{shell_path(packed)} is intact: {quantity(size, 'B')} read, all hashes match")
    if added:
        print("added the digests of its samples, which older versions did not write")
    print_hashes(folder)
    if folder.is_partial:
        print("it is a node's copy, which has only the samples that its jobs read")
    else:
        next_step(*next_command)


def _check_options(
    source: Path, content: Content, options: Mapping[Content, Mapping[str, object]]
) -> None:
    """Raise if options are given that apply only to other kinds of data than ``content``."""
    from vflops.data.data_kind import CONTENT_NAMES
    from vflops.errors import UsageError

    for kind, of_kind in options.items():
        misplaced = [name for name, value in of_kind.items() if value is not None]
        if misplaced and kind != content:
            raise UsageError(
                f"{', '.join(misplaced)} only applies to {CONTENT_NAMES[kind]}, but {source} holds "
                f"{CONTENT_NAMES[content]}",
                hint="omit it",
            )
