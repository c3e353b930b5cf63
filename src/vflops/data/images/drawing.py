"""Learnable images drawn from a seed: a bright textured shape, the class, on a dark ground.

``draw`` is a pure function of (recipe, split, index): slices and chunks do not change the bytes.
Random numbers are hashes of a counter (splitmix64). Every step is integer arithmetic or a single
floating-point operation whose result IEEE 754 defines exactly. So the bytes are the same on every
machine whose numpy conforms to IEEE 754 (flushing denormals to zero does not matter: values that
small do not occur).

Position, rotation, size, brightness and noise vary so much that a linear classifier on pixels does
badly, while a small convolutional network does well.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vflops.data.images.textures import SHAPES, TEXTURES, Plane
from vflops.data.synthetic_folder import check_limits

VERSION = 1  # of the bytes: raise it with any change that alters an image
HUES = 9  # steps of 40°, easy to distinguish at a standard deviation of 6°
_HUE_SPREAD = 6.0 / 360.0
MAX_CLASSES = 10_000  # of 16 shapes × 8 textures × 9 hues × 9 hues of the ground = 10 368
_PIXELS_AT_ONCE = 1 << 16  # planes of 256 KiB fit the cache of a core
_SLOTS = 32  # random numbers reserved per image

Uints = NDArray[np.uint64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recipe:
    """What to draw; lengths are in half-widths of the image, angles in radians unless ``_deg``."""

    classes: int = 10
    size: int = 32
    seed: int = 1
    turn: float = 0.55
    offset: float = 0.4
    radius_least: float = 0.48
    radius_most: float = 0.78
    hue_spread_deg: float = 80.0
    texture_link: float = 0.9
    noise: float = 0.06

    def __post_init__(self) -> None:
        """Raise ``UsageError`` if the recipe cannot be drawn."""
        limits = (("classes", 2, MAX_CLASSES), ("size", 8, 4096), ("seed", 0, 2**63 - 1))
        check_limits("synthetic images", self, limits)

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data, with the version of the generator."""
        return {"generator": "vflops.images", "version": VERSION, **dataclasses.asdict(self)}


def draw(
    recipe: Recipe, split: str, start: int, count: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ``count`` images of a split from ``start`` on, [count, size, size, 3], and labels."""
    images = np.empty((count, recipe.size, recipe.size, 3), np.uint8)
    labels = labels_of(recipe, start, count)
    step = max(_PIXELS_AT_ONCE // recipe.size**2, 1)
    for first in range(0, count, step):
        chunk = slice(first, min(first + step, count))
        index = np.arange(start + chunk.start, start + chunk.stop, dtype=np.uint64)
        _paint(recipe, _key(recipe, split), index, labels[chunk], images[chunk])
    return images, labels


def labels_of(recipe: Recipe, start: int, count: int) -> NDArray[np.int64]:
    """Return the classes of ``count`` images from ``start`` on: all classes in turn."""
    return np.arange(start, start + count, dtype=np.int64) % recipe.classes


def _key(recipe: Recipe, split: str) -> np.uint64:
    text = f"vflops.images {recipe.seed} {split}"
    return np.uint64(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))


def _mix(x: Uints) -> Uints:
    """Apply the output function of splitmix64 (Steele, Lea and Flood, 2014) in place."""
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


class _Random:
    """Random numbers for the images of a chunk: a pure function of (key, index, slot)."""

    def __init__(self, key: np.uint64, index: Uints) -> None:
        self._counter = index * np.uint64(_SLOTS) + key
        self._slot = 0

    def bits(self) -> Uints:
        self._slot += 1
        golden = np.uint64(0x9E3779B97F4A7C15)
        return _mix((self._counter + np.uint64(self._slot)) * golden)

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Floats:
        fraction = (self.bits() >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return fraction * (high - low) + low

    def choice(self, number: int) -> NDArray[np.int64]:
        return (self.uniform() * number).astype(np.int64)

    def normal(self) -> Floats:
        """Return nearly normal numbers (mean 0, deviation 1): scaled sums of four uniform ones."""
        total = self.uniform() + self.uniform() + self.uniform() + self.uniform()
        return (total - 2.0) * 1.7320508075688772


@dataclass(frozen=True)
class Look:
    """Shape, texture, hue of the shape and hue of the ground of each image."""

    shape: NDArray[np.int64]
    texture: NDArray[np.int64]
    hue: NDArray[Any]
    ground_hue: NDArray[Any]


def look_of(labels: NDArray[np.int64]) -> Look:
    """Return the look that is unique to each class: the digits of its number."""
    digit, shape = np.divmod(labels, len(SHAPES))
    digit, texture = np.divmod(digit, len(TEXTURES))
    ground_hue, hue = np.divmod(digit, HUES)
    return Look(shape, texture, hue, ground_hue)


def _vary_looks(recipe: Recipe, random: _Random, labels: NDArray[np.int64]) -> Look:
    """Vary the looks at random, except for what is needed to distinguish the classes."""
    class_look = look_of(labels)
    # Up to this number of classes the shape is enough; beyond it, texture and hues are needed.
    distinct = len(SHAPES)
    if recipe.classes > distinct:
        texture = class_look.texture
    else:
        free = random.uniform() >= recipe.texture_link
        texture = np.where(free, random.choice(len(TEXTURES)), labels % len(TEXTURES))
    distinct *= len(TEXTURES)
    if recipe.classes > distinct:
        hue = class_look.hue / HUES + random.normal() * _HUE_SPREAD
    else:
        hue = labels * 0.6180339887498949 + random.normal() * (recipe.hue_spread_deg / 360.0)
    distinct *= HUES
    if recipe.classes > distinct:
        ground_hue = class_look.ground_hue / HUES + random.normal() * _HUE_SPREAD
    else:
        ground_hue = random.uniform()
    return Look(class_look.shape, texture, hue, ground_hue)


def _paint(
    recipe: Recipe,
    key: np.uint64,
    index: Uints,
    labels: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    random = _Random(key, index)
    look = _vary_looks(recipe, random, labels)
    radius = random.uniform(recipe.radius_least, recipe.radius_most)
    u, v = _shape_coordinates(recipe, random, radius)
    inside = _grouped(SHAPES, look.shape, u, v)
    inside *= _column(radius * (recipe.size / 2))  # in pixels, so that the edge is one pixel wide
    inside = np.clip(inside + 0.5, 0.0, 1.0)
    for axis in (u, v):
        axis *= 1.6  # periods of the texture per radius
        axis += _column(random.uniform(-0.5, 0.5))
    shade = _grouped(TEXTURES, look.texture, u, v)
    shade = (shade * 0.7 + 0.3) * inside
    ground = (1.0 - inside) * _ground_slope(recipe, random)
    bright = _rgb(look.hue, random.uniform(0.45, 0.95), random.uniform(0.65, 1.0))
    dark = _rgb(look.ground_hue, random.uniform(0.3, 0.8), random.uniform(0.1, 0.3))
    grain = _grain(random.bits(), recipe.size)
    for channel in range(3):
        level = shade * _column(bright[channel])
        level += ground * _column(dark[channel])
        out[..., channel] = _levels(level, grain[..., 2 * channel :][..., :2], recipe.noise)


def _levels(brightness: Plane, grain: NDArray[np.uint8], deviation: float) -> Plane:
    """Return levels from 0 to 255 with noise; they are truncated later, so a half is added."""
    noise = grain[..., 0].astype(np.float32)
    noise += grain[..., 1]  # two bytes: a triangular distribution of mean 255, deviation 104.51
    noise -= 255.0
    noise *= deviation * (255.0 / 104.51)
    noise += brightness * 255.0
    levels: Plane = np.clip(noise + 0.5, 0.0, 255.0)
    return levels


def _column(values: Floats) -> Plane:
    """Reshape one value per image so that it broadcasts over planes."""
    return values.astype(np.float32)[:, None, None]


def _shape_coordinates(recipe: Recipe, random: _Random, radius: Floats) -> tuple[Plane, Plane]:
    """Return each pixel's coordinates relative to the shape: shifted, rotated and scaled."""
    grid = (np.arange(recipe.size) * 2 + 1) / recipe.size - 1.0
    sine, cosine = _sine_cosine(random.uniform(-recipe.turn, recipe.turn))
    across = grid - random.uniform(-recipe.offset, recipe.offset)[:, None]
    down = grid - random.uniform(-recipe.offset, recipe.offset)[:, None]
    sine, cosine = (sine / radius)[:, None], (cosine / radius)[:, None]

    def plane(horizontal: Floats, vertical: Floats) -> Plane:
        row = horizontal.astype(np.float32)[:, None, :]
        return row + vertical.astype(np.float32)[:, :, None]

    return plane(across * cosine, down * sine), plane(-(across * sine), down * cosine)


def _sine_cosine(angle: Floats) -> tuple[Floats, Floats]:
    """Return sine and cosine by their power series: libraries differ in the last bit.

    The error is below 1e-7 up to half a turn.
    """
    sine, cosine = np.zeros_like(angle), np.zeros_like(angle)
    term = np.ones_like(angle)
    for power in range(0, 20, 2):
        cosine = cosine + term
        term = term * angle / (power + 1.0)
        sine = sine + term
        term = -(term * angle) / (power + 2.0)
    return sine, cosine


def _ground_slope(recipe: Recipe, random: _Random) -> Plane:
    """Return the brightness of the ground: higher on one side, so that its mean says little."""
    grid = (np.arange(recipe.size) * 2 + 1) / recipe.size - 1.0
    across, down = (random.uniform(-0.5, 0.5)[:, None] * grid for _ in range(2))
    row = (across + 1.0).astype(np.float32)[:, None, :]
    return row + down.astype(np.float32)[:, :, None]


def _rgb(hue: Floats, saturation: Floats, value: Floats) -> list[Floats]:
    """Convert HSV to RGB without branches: each channel is a clipped ramp of the hue's distance."""
    channels = []
    for shift in (5.0, 3.0, 1.0):
        k = hue + shift / 6.0
        k = (k - np.floor(k)) * 6.0
        ramp = np.clip(np.minimum(k, 4.0 - k), 0.0, 1.0)
        channels.append(value - value * saturation * ramp)
    return channels


def _grain(keys: Uints, size: int) -> NDArray[np.uint8]:
    """Return eight random bytes per pixel, [images, size, size, 8]; six of them become noise."""
    pixels = np.arange(1, size * size + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = _mix(keys[:, None] + pixels).astype("<u8", copy=False)
    return bits.view(np.uint8).reshape(len(keys), size, size, 8)


def _grouped(functions: tuple[Any, ...], kinds: NDArray[np.int64], u: Plane, v: Plane) -> Plane:
    """Apply the function of each image's kind, with one call for all images of a kind."""
    out = np.empty_like(u)
    for kind in np.unique(kinds):
        images = np.flatnonzero(kinds == kind)
        out[images] = functions[kind](u[images], v[images])
    return out
