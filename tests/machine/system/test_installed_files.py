"""The digest of the installed software, by which the images of containers are told apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vflops.machine.system.installed_files import installed_digest

RECORD = "usr/lib/python3/dist-packages/torch-2.13.0.dist-info/RECORD"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The lists of an image with two packages."""
    root = tmp_path / "image"
    for name in ("var/lib/dpkg/status", "var/lib/dpkg/info/libc6.md5sums", RECORD):
        path = root / name
        path.parent.mkdir(parents=True)
        path.write_text(f"contents of {name}\n")
    return root


def digest(root: Path) -> str | None:
    return installed_digest(root, [str(root / "usr/lib/python3/dist-packages"), ""])


def test_a_copy_of_an_image_has_the_same_digest(image: Path, tmp_path: Path) -> None:
    shutil.copytree(image, tmp_path / "copy")
    assert digest(image) == digest(tmp_path / "copy") is not None


@pytest.mark.parametrize("name", ["var/lib/dpkg/info/libc6.md5sums", RECORD])
def test_another_package_changes_the_digest(image: Path, name: str) -> None:
    before = digest(image)
    (image / name).write_text("another file\n")
    changed = digest(image)
    (image / name).unlink()
    assert len({before, changed, digest(image)}) == 3


def test_an_image_without_lists_has_no_digest(tmp_path: Path) -> None:
    assert installed_digest(tmp_path, []) is None
