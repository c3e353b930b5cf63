"""Folders of images have a fixed order, and faults in them are reported."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.data_images import image_folder, picture, save
from vflops.data.images.image_folder import ImageFolder
from vflops.data.images.labels import read_labels
from vflops.errors import UsageError


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")


def flat(root: Path, labels: str, name: str = "val_labels.txt") -> Path:
    """Write train/ with class folders, three images in val/ without, and a labels file."""
    for class_name in ("ant", "bee", "cow"):
        touch(root / "train" / class_name / "1.jpg")
    for number in (2, 0, 1):
        touch(root / "val" / f"v{number}.JPEG")
    (root / name).write_text(labels)
    return root


def test_order_follows_from_names_alone(tmp_path: Path) -> None:
    names = [f"train/{c}/{i}.jpg" for c in ("zebra", "ape", "Bear") for i in (10, 9, 1)]
    names += [f"val/{c}/{i}.png" for c in ("zebra", "ape", "Bear") for i in range(2)]
    for name in random.Random(3).sample(names, len(names)):
        touch(tmp_path / name)
    folder = ImageFolder.open(tmp_path)
    assert folder.classes == ("Bear", "ape", "zebra")
    assert list(folder.train.files) == sorted(names[:9])
    assert folder.labels(folder.train) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert folder.labels(folder.val) == [0, 0, 1, 1, 2, 2]


def test_suffixes_hidden_files_and_folders_below(tmp_path: Path) -> None:
    image_folder(tmp_path, train=1, val=1)
    for name in ("a.JPG", "b.jpeg", "c.JPEG", "d.webp", "sub/e.png"):
        touch(tmp_path / "train/cat" / name)
    for name in (".hidden.jpg", "notes.txt", "Thumbs.db"):
        touch(tmp_path / "train/cat" / name)
    touch(tmp_path / "train" / "loose.txt")
    touch(tmp_path / "train" / ".git" / "x.jpg")
    folder = ImageFolder.open(tmp_path)
    assert folder.train.counts == {"cat": 6, "dog": 1}
    assert folder.train.ignored == 5
    assert folder.classes == ("cat", "dog")


def test_linked_folders_are_followed_and_circles_end(tmp_path: Path) -> None:
    image_folder(tmp_path / "real", train=2, val=1)
    data = tmp_path / "data"
    (data / "train").mkdir(parents=True)
    (data / "val").symlink_to(tmp_path / "real/val")
    for name in ("cat", "dog"):
        (data / "train" / name).symlink_to(tmp_path / "real/train" / name)
    (tmp_path / "real/train/cat/again").symlink_to(tmp_path / "real/train/cat")
    folder = ImageFolder.open(data)
    assert folder.train.counts == {"cat": 2, "dog": 2}
    assert folder.val.files[0] == "val/cat/000.jpg"


def test_validation_is_another_name_of_val(tmp_path: Path) -> None:
    image_folder(tmp_path)
    (tmp_path / "val").rename(tmp_path / "validation")
    folder = ImageFolder.open(tmp_path)
    assert folder.val.name == "val"
    assert folder.val.files[0] == "validation/cat/000.jpg"


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("val_labels.txt", "v0.JPEG cow\nv2.JPEG ant\nv1.JPEG bee\n"),
        ("val.txt", "v1.JPEG 1\nv0.JPEG 2\nv2.JPEG 0"),
        ("val/labels.txt", "val/v0.JPEG\tcow\n\nval/v1.JPEG\tbee\nval/v2.JPEG\tant\n"),
        ("labels.txt", "cow\nbee\nant\n"),
        ("labels.txt", "2\n1\n0\n"),
        ("imagenet_2012_validation_synset_labels.txt", "cow\nbee\nant"),
        (
            "LOC_val_solution.csv",
            "ImageId,PredictionString\nv2,ant 1 2 3 4 ant 5 6 7 8\nv1,bee 1 1 2 2\nv0,cow 0 0 1 1",
        ),
    ],
)
def test_labels_files_of_every_form(tmp_path: Path, name: str, labels: str) -> None:
    folder = ImageFolder.open(flat(tmp_path, labels, name))
    assert folder.val.files == ("val/v0.JPEG", "val/v1.JPEG", "val/v2.JPEG")
    assert folder.val.class_of == ("cow", "bee", "ant")
    assert folder.labels(folder.val) == [2, 1, 0]


@pytest.mark.parametrize(
    ("labels", "name", "message", "hint"),
    [
        ("cow\nbee\n", "val.txt", "val.txt has 2 lines for 3 images", "one class per line"),
        ("cow\nbee\nelk", "val.txt", "names the class 'elk', which train/ lacks", "ant … cow"),
        ("1\n2\n3", "val.txt", "class number 3; train/ has 3 classes, 0 … 2", "subtract 1"),
        ("v0.JPEG ant\nv9.JPEG bee", "val.txt", "names v9.JPEG, which is not", "same data set"),
        (
            "v0.JPEG ant\nv1.JPEG bee",
            "val.txt",
            "2 of 3 images, but none for v2.JPEG",
            "every image",
        ),
        ("v0.JPEG ant\nv0.JPEG bee", "val.txt", "two classes: ant and bee", ""),
        ("v0.JPEG ant\nbee", "val.txt", "line 2: 'bee' does not name a file", "every line"),
        ("1\n2\n3", "ILSVRC2012_validation_ground_truth.txt", "order of their names", "val.txt"),
        ("", "other.txt", "there is no labels file", "val_labels.txt"),
    ],
)
def test_wrong_labels_are_named(
    tmp_path: Path, labels: str, name: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        ImageFolder.open(flat(tmp_path, labels, name))
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
    assert str(tmp_path) in caught.value.message


@given(st.permutations(range(6)), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_lines_with_names_may_come_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], labels: list[int]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    classes = ["golden retriever", "tabby, tabby cat", "7"]
    names = [f"img {number}.png" for number in range(6)]
    lines = [f"{names[i]} {classes[labels[i]]}" for i in order]
    (folder / "labels.txt").write_text("\n".join(lines))
    assert read_labels((folder,), names, classes) == [classes[label] for label in labels]


def one_class(root: Path) -> None:
    save(root / "train/cat/1.jpg", picture(1))
    (root / "val").mkdir()


def half_sorted(root: Path) -> None:
    image_folder(root, train=1, val=1)
    for number in range(5):
        touch(root / "val" / f"{number}.jpg")


def no_images(root: Path) -> None:
    for name in ("cat", "dog"):
        (root / "train" / name).mkdir(parents=True)
    touch(root / "train/cat/readme.txt")
    (root / "val").mkdir()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda root: root.rmdir(), "does not exist; expected a folder"),
        (lambda root: (root.rmdir(), root.write_text("x")), "is a file; expected a folder"),
        (lambda root: None, "is empty"),
        (lambda root: touch(root / "cat/1.jpg"), "has no train/; it holds cat"),
        (lambda root: touch(root / "train/cat/1.jpg"), "has no val/; it holds train"),
        (one_class, "has one class folder, cat; expected two or more"),
        (no_images, "holds no images: 2 class folders, 1 other files"),
        (half_sorted, "val has 5 images beside its class folders: 0.jpg, 1.jpg, 2.jpg and 2 more"),
        (lambda root: touch(root / "index.json"), "holds packed images"),
    ],
)
def test_what_is_no_image_folder_is_named(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    root = tmp_path / "images"
    root.mkdir()
    make(root)
    with pytest.raises(UsageError) as caught:
        ImageFolder.open(root)
    assert message in caught.value.message
    assert str(root) in caught.value.message
    assert caught.value.hint


def test_classes_that_cannot_be_learnt_have_no_labels(tmp_path: Path) -> None:
    image_folder(tmp_path)
    save(tmp_path / "val/owl/1.jpg", picture(1))
    folder = ImageFolder.open(tmp_path)
    assert folder.only_in_val == ["owl"]
    with pytest.raises(UsageError, match="classes in val that train lacks: owl"):
        folder.labels(folder.val)
