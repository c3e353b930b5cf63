"""Small years of climate fields, good and bad, made with h5py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

HEIGHT, WIDTH = 24, 40
SCALE = np.geomspace(1e-7, 900.0, 16)
OFFSET = SCALE * np.linspace(-5.0, 110.0, 16)


def fields(seed: int, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.float32]:
    """Return a frame of noise with scales as different as those of the real channels."""
    noise = np.random.default_rng(seed).standard_normal((16, height, width))
    return np.asarray(noise * SCALE[:, None, None] + OFFSET[:, None, None], np.float32)


def frames(number: int, seed: int = 0, **size: int) -> NDArray[np.float32]:
    """Return several frames."""
    return np.stack([fields(1000 * seed + frame, **size) for frame in range(number)])


def boxes(number: int, seed: int = 0, per_frame: int = 3) -> NDArray[np.int32]:
    """Return boxes for every frame, (number, 15, 5) as published; many reach beyond a square."""
    rng = np.random.default_rng(seed)
    rows = np.full((number, 15, 5), -1, np.int32)
    for frame in range(number):
        for row in range(per_frame):
            top, left = int(rng.integers(0, HEIGHT - 6)), int(rng.integers(0, WIDTH - 9))
            left = WIDTH - 9 if row == 0 else left
            size = rng.integers(2, 6, 2)
            rows[frame, row] = top, left, top + size[0], left + size[1] + 3, rng.integers(0, 4)
    return rows


def write_year(
    path: Path,
    images: NDArray[Any] | None = None,
    rows: NDArray[Any] | None = None,
    **options: Any,
) -> Path:
    """Write the file of a year; ``options`` are those of h5py for ``images``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number = 5 if images is None else len(images)
    seed = int("".join(filter(str.isdigit, path.stem)) or 0)
    with h5py.File(path, "w") as file:
        data = frames(number, seed) if images is None else images
        file.create_dataset("images", data=data, **options)
        file.create_dataset("boxes", data=boxes(number, seed) if rows is None else rows)
    return path


def year_folder(
    root: Path, years: Sequence[int] = (1979, 1980, 1981, 1982), number: int = 5, **options: Any
) -> Path:
    """Write a folder of small years, all different."""
    for year in years:
        write_year(root / f"climo_{year}.h5", frames(number, year), boxes(number, year), **options)
    return root


def change(path: Path, key: str, how: Callable[[Any], None]) -> None:
    """Change an array of a file in place."""
    with h5py.File(path, "r+") as file:
        how(file[key])


def set_value(path: Path, key: str, values: Mapping[tuple[int, ...], float]) -> None:
    """Set single values of an array of a file."""

    def assign(array: Any) -> None:
        for index, value in values.items():
            array[index] = value

    change(path, key, assign)
