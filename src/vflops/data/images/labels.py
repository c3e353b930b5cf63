"""Labels files for a ``val/`` without class folders: class names or numbers, in common formats."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from vflops.errors import UsageError
from vflops.record.files.regular_file import read_regular

_ILSVRC_CSV = "LOC_val_solution.csv"
_ILSVRC_OWN_ORDER = "ILSVRC2012_validation_ground_truth.txt"
FILES = (
    "val_labels.txt",
    "val.txt",
    "labels.txt",
    "imagenet_2012_validation_synset_labels.txt",
    _ILSVRC_CSV,
)
"""Names of labels files; the first that exists is read."""

_WITH_FILE = re.compile(r"(.+?\.(?:jpe?g|png|webp))[\s,]+(.+)", re.IGNORECASE)


def read_labels(folders: Sequence[Path], names: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return the class of each file in ``names`` (sorted), from the first labels file found."""
    path = _labels_file(folders)
    lines = _lines(path)
    if path.name == _ILSVRC_CSV:
        return _by_name(path, _parse_solution(path, lines[1:]), names, classes)
    matches = [_WITH_FILE.fullmatch(line) for line in lines]
    if any(matches):
        pairs = []
        for number, match in enumerate(matches, 1):
            if match is None:
                raise UsageError(
                    f"{path}, line {number}: {lines[number - 1]!r} does not name a file",
                    hint="either every line is `filename class`, or none names a file",
                )
            pairs.append((match[1], match[2].strip()))
        return _by_name(path, pairs, names, classes)
    if len(lines) != len(names):
        raise UsageError(
            f"{path} has {len(lines)} lines for {len(names)} images",
            hint="one class per line in the order of file names, or `filename class` on each line",
        )
    return _class_names(path, lines, classes)


def _labels_file(folders: Sequence[Path]) -> Path:
    for folder in folders:
        for name in FILES:
            if (folder / name).is_file():
                return folder / name
    for folder in folders:
        if (folder / _ILSVRC_OWN_ORDER).is_file():
            raise UsageError(
                f"{folder / _ILSVRC_OWN_ORDER} does not number the classes in the order of their "
                "names: nearly every label would be wrong",
                hint=f"use {_ILSVRC_CSV} or val.txt with `filename class`, "
                "or sort the images into val/<class>/",
            )
    raise UsageError(
        f"{folders[-1]} holds images without class folders, and there is no labels file in it or "
        f"in {folders[0]}",
        hint=f"sort them into val/<class>/, or add {FILES[0]} with lines `filename class`",
    )


def _lines(path: Path) -> list[str]:
    try:
        text = read_regular(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not text: {error.reason}", hint="expected UTF-8") from error
    return [line.strip() for line in text.splitlines() if line.strip()]


def _parse_solution(path: Path, lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return file and class of each line of ILSVRC's CSV: the first word of the prediction."""
    try:
        rows = [row for row in csv.reader(lines) if len(row) > 1]
    except csv.Error as error:
        raise UsageError(f"{path} is not CSV: {error}") from error
    unlabelled = next((row[0] for row in rows if not row[1].strip()), None)
    if unlabelled is not None:
        raise UsageError(f"{path} has no class for {unlabelled}")
    return [(row[0], row[1].split()[0]) for row in rows]


def _by_name(
    path: Path, pairs: Sequence[tuple[str, str]], names: Sequence[str], classes: Sequence[str]
) -> list[str]:
    """Return the class of each of ``names``, from pairs of file (suffix optional) and class."""
    known = set(names)
    stems = {PurePosixPath(name).stem: name for name in names}
    class_of: dict[str, str] = {}
    for file, label in zip(
        (PurePosixPath(file).name for file, _ in pairs),
        _class_names(path, [label for _, label in pairs], classes),
        strict=True,
    ):
        name = file if file in known else stems.get(file)
        if name is None:
            raise UsageError(
                f"{path} names {file}, which is not among the {len(names)} images",
                hint="the labels file and the images must belong to the same data set",
            )
        if class_of.setdefault(name, label) != label:
            raise UsageError(f"{path} gives {file} two classes: {class_of[name]} and {label}")
    unlabelled = [name for name in names if name not in class_of]
    if unlabelled:
        raise UsageError(
            f"{path} has a class for {len(class_of)} of {len(names)} images, "
            f"but none for {unlabelled[0]}",
            hint="add a line for every image, or remove images without a class",
        )
    return [class_of[name] for name in names]


def _class_names(path: Path, labels: Sequence[str], classes: Sequence[str]) -> list[str]:
    """Return ``labels`` as class names; if not all are names, all must be numbers from 0."""
    known = set(classes)
    unknown = next((label for label in labels if label not in known), None)
    if unknown is None:
        return list(labels)
    if not all(label.isascii() and label.isdigit() and len(label) < 10 for label in labels):
        raise UsageError(
            f"{path} names the class {unknown!r}, which train/ lacks",
            hint=f"train/ has {len(classes)} classes, {classes[0]} … {classes[-1]}; "
            "numbers count them from 0 in the order of names",
        )
    highest = max(map(int, labels))
    if highest >= len(classes):
        raise UsageError(
            f"{path} has the class number {highest}; train/ has {len(classes)} classes, "
            f"0 … {len(classes) - 1}",
            hint="numbers count from 0 in the order of class names: subtract 1 if yours start at 1",
        )
    return [classes[int(label)] for label in labels]
