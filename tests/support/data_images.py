"""Small folders of real images, good and bad, made with Pillow."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    """Return a picture of ``size`` (width, height) with edges and gradients, one per seed."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def save(path: Path, image: Image.Image) -> Path:
    """Write ``image`` in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    return path


def jpeg(seed: int) -> bytes:
    """Return the bytes of a JPEG file."""
    file = io.BytesIO()
    picture(seed).save(file, "JPEG")
    return file.getvalue()


def every_kind(folder: Path) -> list[Path]:
    """Write files of every common format and mode, of sizes around 30 pixels."""
    colour = picture(1, (37, 61))
    return [
        save(folder / "a.jpg", picture(2)),
        save(folder / "b.JPEG", picture(3, (61, 33))),
        save(folder / "c.png", colour),
        save(folder / "d.webp", picture(4)),
        save(folder / "grey.jpg", colour.convert("L")),
        save(folder / "cmyk.jpg", colour.convert("CMYK")),
        save(folder / "palette.png", colour.convert("P")),
        save(folder / "alpha.png", colour.convert("RGBA")),
        save(folder / "bits.png", colour.convert("1")),
        save(folder / "tiny.png", picture(5, (7, 5))),
        save(folder / "line.png", picture(6, (1, 40))),
    ]


def image_folder(root: Path, *, train: int = 6, val: int = 2) -> Path:
    """Write two classes of ``train`` and ``val`` images each, all different."""
    for number, name in enumerate(("cat", "dog")):
        for split, count in (("train", train), ("val", val)):
            for index in range(count):
                seed = 1000 * number + 100 * (split == "val") + index + 7
                save(root / split / name / f"{index:03d}.jpg", picture(seed))
    return root


def spoil(root: Path) -> dict[str, str]:
    """Add bad files to ``train/cat``; return a word of the reason for each."""
    folder = root / "train" / "cat"
    whole = jpeg(1)
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "nothing.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("I am no image")
    png = io.BytesIO()
    picture(2).save(png, "PNG")
    (folder / "cut.png").write_bytes(png.getvalue()[:-200])
    return {
        "train/cat/cut.jpg": "truncated",
        "train/cat/cut.png": "truncated",
        "train/cat/nothing.jpg": "empty",
        "train/cat/text.jpg": "not a JPEG",
    }


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below ``folder`` by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
