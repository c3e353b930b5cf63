"""A folder of image files: ``DIR/train/<class>/*`` and ``DIR/val/<class>/*`` or a labels file.

The order depends on names alone, so it is the same on every machine: classes are sorted by name and
numbered in that order, and the images of a class are sorted by path.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vflops.data.data_kind import require_folder
from vflops.data.images.labels import read_labels
from vflops.errors import Hint, UsageError
from vflops.units import count

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp")
"""Suffixes of image files, in lower or upper case."""

_VAL_NAMES = ("val", "validation")
_LAYOUT = "expected {0}/train/<class>/*.jpg and {0}/val/<class>/*.jpg"


@dataclass(frozen=True)
class ImageSplit:
    """The images of ``train`` or ``val``, in order."""

    name: str
    files: tuple[str, ...]
    """Paths relative to the image folder, with ``/``."""
    class_of: tuple[str, ...]
    """The class of each file."""
    folders: tuple[str, ...]
    """All classes that have a folder, even an empty one; none if a labels file has the classes."""
    ignored: int
    """Number of files that are hidden or have another suffix."""

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Number of images by class, sorted by name; 0 for an empty folder."""
        counts = Counter(self.class_of)
        return {name: counts[name] for name in sorted({*counts, *self.folders})}


@dataclass(frozen=True)
class ImageFolder:
    """Two splits of images; a label is the position of a class of ``train`` in ``classes``."""

    path: Path
    classes: tuple[str, ...]
    train: ImageSplit
    val: ImageSplit

    @classmethod
    def open(cls, path: Path) -> ImageFolder:
        """Open the images in ``path``; raise ``UsageError`` if the layout is not as expected."""
        train_folder, val_folder = _split_folders(path)
        train = _class_split(path, train_folder, "train")
        if len(train.folders) < 2:
            found = f"one class folder, {train.folders[0]}" if train.folders else "no class folder"
            raise UsageError(
                f"{train_folder} has {found}; expected two or more",
                hint="put the images of each class in a separate folder: train/<class>/*.jpg",
            )
        _require_images(train, train_folder)
        classes = tuple(sorted(train.folders))
        val = _class_split(path, val_folder, "val")
        if not val.files:
            val = _flat_split(path, val_folder, classes)
        _require_images(val, val_folder)
        return cls(path, classes, train, val)

    @property
    def splits(self) -> tuple[ImageSplit, ImageSplit]:
        """``train`` and ``val``."""
        return self.train, self.val

    @property
    def empty_classes(self) -> list[str]:
        """Classes whose folder in ``train`` holds no image."""
        return [name for name in self.classes if not self.train.counts.get(name)]

    @property
    def missing_from_val(self) -> list[str]:
        """Classes of ``train`` without an image in ``val``."""
        return [name for name in self.classes if not self.val.counts.get(name)]

    @property
    def only_in_val(self) -> list[str]:
        """Classes of ``val`` that are not in ``train``: they cannot be learned."""
        return sorted(self.val.counts.keys() - set(self.classes))

    def labels(self, split: ImageSplit) -> list[int]:
        """Return the label of every image; raise ``UsageError`` if a class cannot be learned."""
        if self.only_in_val:
            raise UsageError(
                f"{self.path} has classes in val that train lacks: {first_few(self.only_in_val)}",
                hint="remove them from val, or add their images to train",
            )
        if self.empty_classes:
            raise UsageError(
                f"{self.path / 'train'} has class folders without an image: "
                f"{first_few(self.empty_classes)}",
                hint="put images into them, or remove the folders",
            )
        label = {name: number for number, name in enumerate(self.classes)}
        return [label[name] for name in split.class_of]


def first_few(names: list[str], *, limit: int = 3) -> str:
    """Return the first few of ``names`` and the number of others, as text."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _split_folders(path: Path) -> tuple[Path, Path]:
    layout = _LAYOUT.format(path)
    require_folder(path, "images", layout)
    names = sorted(entry.name for entry in _entries(path) if not entry.name.startswith("."))
    if not names:
        raise UsageError(f"{path} is empty", hint=layout)
    if "index.json" in names:
        raise UsageError(
            f"{path} holds packed images, expected a folder of image files",
            hint=Hint("to check packed data", f"vflops data verify {path}"),
        )
    if not (path / "train").is_dir():
        raise UsageError(f"{path} has no train/; it holds {first_few(names)}", hint=layout)
    for name in _VAL_NAMES:
        if (path / name).is_dir():
            return path / "train", path / name
    raise UsageError(
        f"{path} has no val/; it holds {first_few(names)}",
        hint=f"quality is measured on images that are not trained on: {layout}",
    )


def _class_split(root: Path, folder: Path, name: str) -> ImageSplit:
    files: list[str] = []
    class_of: list[str] = []
    folders: list[str] = []
    ignored = 0
    for entry in _entries(folder):
        if entry.name.startswith(".") or not entry.is_dir():
            ignored += 1
            continue
        folders.append(entry.name)
        images, others = _images(Path(entry.path), root)
        files += images
        class_of += [entry.name] * len(images)
        ignored += others
    if files:
        _require_sorted(folder)
    return ImageSplit(name, tuple(files), tuple(class_of), tuple(folders), ignored)


def _require_sorted(folder: Path) -> None:
    """Raise ``UsageError`` if images lie beside the class folders of a split."""
    beside = [entry.name for entry in _entries(folder) if is_image(entry.name) and entry.is_file()]
    if beside:
        raise UsageError(
            f"{folder} has {count(len(beside), 'image')} beside its class folders: "
            f"{first_few(beside)}",
            hint="move them into the folders of their classes, or remove them",
        )


def _flat_split(root: Path, folder: Path, classes: tuple[str, ...]) -> ImageSplit:
    """Return images directly in ``folder``, whose classes are in a labels file."""
    entries = [entry for entry in _entries(folder) if entry.is_file()]
    names = [entry.name for entry in entries if is_image(entry.name)]
    files = tuple(_relative(folder / name, root) for name in names)
    labels = read_labels((root, folder), names, classes) if names else []
    return ImageSplit("val", files, tuple(labels), (), len(entries) - len(names))


def _require_images(split: ImageSplit, folder: Path) -> None:
    if not split.files:
        raise UsageError(
            f"{folder} holds no images: {len(split.folders)} class folders, "
            f"{split.ignored} other files",
            hint=f"images end in {', '.join(SUFFIXES)}",
        )


def is_image(name: str) -> bool:
    """Whether a file of this name counts as an image."""
    return not name.startswith(".") and name.lower().endswith(SUFFIXES)


def _images(folder: Path, root: Path) -> tuple[list[str], int]:
    """Return the sorted images in and below a class folder, and the number of other files."""
    images: list[str] = []
    others = 0
    for path in _walk(folder, ()):
        if is_image(path.name):
            images.append(_relative(path, root))
        else:
            others += 1
    return images, others


def _walk(folder: Path, parents: tuple[str, ...]) -> Iterator[Path]:
    real = os.path.realpath(folder)
    if real in parents:
        return  # following a link to a parent folder would never end
    for entry in _entries(folder):
        path = folder / entry.name
        if entry.is_dir() and not entry.name.startswith("."):
            yield from _walk(path, (*parents, real))
        else:
            yield path


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise UsageError(
            f"cannot read {folder}: {error.strerror or error}",
            hint="check the permissions of the folder and that its disk is mounted",
        ) from error
