"""A picture of a synthetic frame: water vapour in colours, wind as arrows, storms in boxes.

    python benchmarks/weather_picture.py docs/pictures/extreme-weather.png [--seed 1] [--frame 1014]

North is up. The coasts are those of the synthetic land of the recipe.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from vflops.data.climate.background_fields import channel, land
from vflops.data.climate.field_names import CLASSES
from vflops.data.climate.weather import Frame, WeatherRecipe, draw

COLOURS = ("#ffd166", "#ff4d6d", "#ffffff", "#7dff9a")  # one per class
SHADES = (  # mm of water, and its colour
    (0, "#33261b"),
    (8, "#6b5238"),
    (16, "#9c8059"),
    (24, "#cdb98c"),
    (32, "#8fb8a8"),
    (42, "#3f8fa8"),
    (52, "#235f97"),
    (62, "#31357f"),
    (75, "#5c1a78"),
)
COAST = "#20170f"
ARROW_PX = 28
LONGEST_PX = 30
FULL_M_S = 25.0
MARGIN_PX = 46
KEY_PX = 64


def rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def shaded(water: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Return the colour of each amount of water, rounded to millimetres for a smaller file."""
    water = np.round(water)
    amounts = [amount for amount, _ in SHADES]
    parts = [rgb(colour) for _, colour in SHADES]
    planes = [np.interp(water, amounts, [part[band] for part in parts]) for band in range(3)]
    return np.stack(planes, axis=-1).astype(np.uint8)


def coasts(recipe: WeatherRecipe) -> NDArray[np.bool_]:
    dry = land(recipe.seed, recipe.height, recipe.width) > 0
    edge = np.zeros_like(dry)
    edge[1:] |= dry[1:] != dry[:-1]
    edge[:, 1:] |= dry[:, 1:] != dry[:, :-1]
    return edge


def arrows(canvas: ImageDraw.ImageDraw, frame: Frame) -> None:
    east, north = channel(frame.fields, "U850"), channel(frame.fields, "V850")
    height, width = east.shape
    for row in range(ARROW_PX // 2, height, ARROW_PX):
        for column in range(ARROW_PX // 2, width, ARROW_PX):
            dx, dy = float(east[row, column]), -float(north[row, column])
            speed = (dx * dx + dy * dy) ** 0.5
            if speed < 1.5:
                continue
            length = LONGEST_PX * min(speed / FULL_M_S, 1.2)
            dx, dy = dx / speed, dy / speed
            arrow(canvas, column, height - 1 - row, dx, dy, length)


def arrow(
    canvas: ImageDraw.ImageDraw, x: float, y: float, dx: float, dy: float, length: float
) -> None:
    tip = (x + dx * length / 2, y + dy * length / 2)
    head = min(5.0, length * 0.45)
    colour = "#e4e0d8"
    canvas.line([(x - dx * length / 2, y - dy * length / 2), tip], fill=colour, width=1)
    for side in (-0.5, 0.5):
        back = (tip[0] - head * (dx + side * dy), tip[1] - head * (dy - side * dx))
        canvas.line([tip, back], fill=colour, width=1)


def label(
    canvas: ImageDraw.ImageDraw,
    font: ImageFont.FreeTypeFont,
    x: int,
    y: int,
    text: str,
    colour: str,
) -> None:
    left, top, right, bottom = canvas.textbbox((x, y), text, font=font)
    canvas.rectangle([left - 3, top - 2, right + 3, bottom + 2], fill=colour)
    canvas.text((x, y), text, font=font, fill="#101010")


def boxes(canvas: ImageDraw.ImageDraw, frame: Frame, font: ImageFont.FreeTypeFont) -> None:
    height = frame.fields.shape[1]
    for bottom, left, top, right, kind in frame.boxes.tolist():
        colour = COLOURS[kind]
        canvas.rectangle([left, height - top, right, height - bottom], outline=colour, width=3)
        label(canvas, font, left + 3, max(height - top - 18, 2), CLASSES[kind], colour)


def key(page: Image.Image, width: int, height: int, font: ImageFont.FreeTypeFont) -> None:
    """Draw latitudes at the side, and the legend of colours and arrows below."""
    canvas = ImageDraw.Draw(page)
    for degrees in range(-60, 61, 30):
        name = "equator" if degrees == 0 else f"{abs(degrees)}°{'N' if degrees > 0 else 'S'}"
        y = round(height * (0.5 - degrees / 180))
        canvas.text((MARGIN_PX - 8, y), "0°" if degrees == 0 else name, "#303030", font, "rm")
        canvas.line([(MARGIN_PX - 5, y), (MARGIN_PX, y)], fill="#303030")
    most = SHADES[-1][0]
    bar = np.linspace(0, most, 420, dtype=np.float32)[None, :].repeat(14, 0)
    page.paste(Image.fromarray(shaded(bar)), (MARGIN_PX, height + 14))
    for amount in range(0, most + 1, 15):
        x = MARGIN_PX + round(amount / most * 419)
        canvas.text((x, height + 32), str(amount), "#303030", font, "ma")
    text = "precipitable water (TMQ), mm"
    canvas.text((MARGIN_PX + 436, height + 21), text, "#303030", font, "lm")
    x = MARGIN_PX + 436
    canvas.line([(x, height + 46), (x + LONGEST_PX, height + 46)], fill="#303030", width=1)
    canvas.line([(x + 25, height + 43), (x + 30, height + 46), (x + 25, height + 49)], "#303030")
    text = f"wind at 850 hPa, {FULL_M_S:.0f} m/s"
    canvas.text((x + LONGEST_PX + 8, height + 46), text, "#303030", font, "lm")


def picture(recipe: WeatherRecipe, year: int, number: int) -> Image.Image:
    """Return the picture of a frame with its legend."""
    frame = draw(recipe, year, number)
    pixels = shaded(channel(frame.fields, "TMQ"))
    pixels[coasts(recipe)] = rgb(COAST)
    image = Image.fromarray(pixels[::-1].copy())
    font = ImageFont.load_default(size=15)
    assert isinstance(font, ImageFont.FreeTypeFont)
    canvas = ImageDraw.Draw(image)
    arrows(canvas, frame)
    boxes(canvas, frame, font)
    page = Image.new("RGB", (recipe.width + MARGIN_PX, recipe.height + KEY_PX), "white")
    page.paste(image, (MARGIN_PX, 0))
    key(page, recipe.width, recipe.height, font)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("output", type=Path)
    for name, default in (("seed", 1), ("year", 1979), ("frame", 1014)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    recipe = WeatherRecipe(seed=options.seed)
    picture(recipe, options.year, options.frame).save(options.output, optimize=True)


if __name__ == "__main__":
    main()
