"""``vflops data`` for images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from vflops.cli.options import default_profile
from vflops.cli.train.data.data_lines import (
    default_destination,
    print_destination,
    print_hashes,
    print_lines,
    shards_text,
)
from vflops.text import printable

if TYPE_CHECKING:
    from vflops.data.images.check_images import ImageReport
    from vflops.data.images.image_folder import ImageFolder
    from vflops.data.images.packed_images import PackedImages
    from vflops.data.images.synthetic_images import Format
    from vflops.data.packing import Policy
    from vflops.workloads.contract.spec import WorkloadSpec
    from vflops.workloads.image_classification.settings import ImageSettings

MAX_UNPACKED_BYTES = 2 << 30
"""The maximum size of images that a run packs by itself; the workload has the same limit."""


def synth(
    folder: Path, classes: int, size: int, train: int, val: int, seed: int, format: Format
) -> None:
    """Write synthetic images into ``folder``."""
    from vflops.cli.terminal.console import next_step, shell_path
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.images.drawing import Recipe
    from vflops.data.images.synthetic_images import write_folder
    from vflops.units import count

    recipe = Recipe(classes=classes, size=size, seed=seed)
    with Bar("images drawn") as bar:
        write_folder(recipe, folder, train, val, format, bar.show)
    print(f"{shell_path(folder)}: {count(train, 'image')} for training, {val:,} for validation")
    next_step(f"vflops data check {shell_path(folder)}", "check that it is complete and readable")


def check(source: Path, json: bool, workers: int | None) -> None:
    """Decode every image and print all faults."""
    from vflops.cli.terminal.console import next_step, other_step, shell_path, working
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.images.check_images import check as check_images
    from vflops.data.images.image_folder import ImageFolder
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
        skipped = bool(report.unreadable) + bool(report.zero_byte)  # all else stays as it is
        suffices = skipped == len(report.problems) and all(
            split.readable for split in report.splits.values()
        )
        pack_it = f"vflops data pack {shell_path(source)} --policy skip"
        raise CheckFailed(
            f"{shell_path(source)} is not ok: {'; '.join(report.problems)}",
            hint="fix what is listed above" + (f", or {pack_it}" if suffices else ""),
        )
    if not json:
        print("no errors")
        profile = default_profile()
        next_step(
            f"vflops data pack {shell_path(source)} --profile {profile}",
            "pack it for fast reading, with a short side of at most "
            f"{_recipe(profile).resize} pixels",
        )
        if _trains_unpacked(folder, _recipe(profile)):
            other_step(_training(source, profile), "train to the accuracy that you want")


def pack(
    source: Path,
    destination: Path | None,
    profile: str | None,
    short_side: int | None,
    policy: Policy,
    workers: int | None,
    *,
    enlarge: bool,
) -> None:
    """Decode all images and reduce them to what the profile trains on, in shards."""
    from vflops.cli.terminal.console import next_step, working
    from vflops.cli.terminal.progress_bar import Bar
    from vflops.data.images.image_folder import ImageFolder
    from vflops.data.images.pack_images import bytes_needed
    from vflops.data.images.pack_images import pack as pack_images

    with working("listing the images"):
        folder = ImageFolder.open(source)
    profile = profile or default_profile()
    side = short_side or _recipe(profile).resize
    target = destination or default_destination(source, str(side))
    print_destination(target, bytes_needed(folder, side, enlarge=enlarge))
    with Bar("images packed") as bar:
        packed = pack_images(
            folder,
            target,
            short_side=side,
            enlarge=enlarge,
            workers=workers,
            policy=policy,
            on_progress=bar.show,
        )
    _show_packed(packed)
    next_step(*training_command(packed, target, profile))


def training_command(images: PackedImages, folder: Path, profile: str | None) -> tuple[str, str]:
    """Return the next command after packing images into ``folder``, and what it does."""
    from vflops.workloads.image_classification.rescaled import lacks_detail, smaller_recipe

    profile = profile or default_profile()
    command = _training(folder, profile)
    recipe = _recipe(profile)
    if lacks_detail(images, recipe):
        command += f" {smaller_recipe(images, recipe)}"
    return command, "train to the accuracy that you want"


def _trains_unpacked(folder: ImageFolder, recipe: ImageSettings) -> bool:
    """Whether a run packs ``folder`` by itself because it is small."""
    from vflops.data.images.pack_images import bytes_needed
    from vflops.workloads.image_classification.rescaled import enlarges

    size_bytes = bytes_needed(folder, recipe.resize, enlarge=enlarges(recipe))
    return size_bytes <= MAX_UNPACKED_BYTES


def _training(data: Path, profile: str) -> str:
    from vflops.cli.terminal.console import shell_path

    spec = _image_workload(profile)
    command = f"vflops run {spec.name} --profile {profile} --data {shell_path(data)}"
    return command if spec.is_search else f"{command} --set target=0.8"


def _recipe(profile: str) -> ImageSettings:
    from vflops.workloads.image_classification.settings import ImageSettings

    settings = _image_workload(profile).profile(profile)
    assert isinstance(settings, ImageSettings)
    return settings


def _image_workload(profile: str) -> WorkloadSpec:
    """Return image classification, or the search if only that has the profile."""
    from vflops.config.profiles import SHARED_PROFILES, check_profile_name
    from vflops.workloads.contract.registry import workload

    check_profile_name(profile)
    return workload("image-classification" if profile in SHARED_PROFILES else "automl")


def _show_packed(packed: PackedImages) -> None:
    from vflops.units import count

    for name, split in packed.index.splits.items():
        size = sum(shard.bytes for shard in split.shards)
        shards = shards_text(len(split.shards), size)
        left_out = f", {len(split.skipped):,} left out" if split.skipped else ""
        print(f"{name:5}  {count(split.images, 'image')} in {shards}{left_out}")
        print_lines([f"{fault.file}: {fault.reason}" for fault in split.skipped])
    for warning in packed.index.duplicates.warnings if packed.index.duplicates else ():
        print(f"warning: {printable(warning)}")
    print_hashes(packed)


def _show_report(report: ImageReport) -> None:
    from vflops.cli.terminal.columns import columns

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
    print("sizes in pixels: smallest – median – largest")
    for note in report.notes:
        print(f"note: {printable(note)}")
    print_lines([f"{fault.file}: {fault.reason}" for fault in report.unreadable])
    print_lines([f"{file}: the file is empty" for file in report.zero_byte])
    print_lines([f"train/{name}: no images" for name in report.empty_classes])
    print_lines([f"val/{name}: train has no such class" for name in report.only_in_val])
    print_lines([f"{leak.val}: the same bytes as {leak.train}" for leak in report.leaks])
    print_lines(
        [
            f"{pair.sample}: the same bytes as {pair.same_as}, but another class"
            for pair in report.contradictions
        ]
    )
