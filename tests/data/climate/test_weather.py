from __future__ import annotations

import hashlib

import numpy as np
import pytest

from tests.support.data_weather import SMALL, anomaly, check_boxes, check_ranges, fields, frames
from vflops.data.climate.background_fields import channel, latitude
from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.noise import generator, noise, noises
from vflops.data.climate.weather import OFFSET, RANGES, SCALE, Frame, WeatherRecipe, draw
from vflops.errors import UsageError


def digest(frame: Frame) -> str:
    return hashlib.sha256(frame.fields.tobytes() + frame.boxes.tobytes()).hexdigest()


def test_a_frame_is_a_pure_function_of_recipe_year_and_number() -> None:
    for number in (17, 3, 17):
        again = draw(WeatherRecipe(96, 144), 1979, number)
        np.testing.assert_array_equal(again.fields, frames()[number].fields)
        np.testing.assert_array_equal(again.boxes, frames()[number].boxes)


def test_the_bytes_are_those_of_every_machine() -> None:
    assert digest(draw(WeatherRecipe(64, 96), 1979, 4)) == BYTES


def test_another_seed_year_or_number_is_another_frame() -> None:
    others = (
        draw(WeatherRecipe(96, 144, seed=2), 1979, 0),
        draw(SMALL, 1980, 0),
        draw(SMALL, 1979, 1),
        draw(SMALL, 0, 1979),
    )
    for other in others:
        for name in CHANNELS:  # both may have no rain in some places
            assert (channel(other.fields, name) != channel(frames()[0].fields, name)).mean() > 0.8
        assert other.boxes.tolist() != frames()[0].boxes.tolist()


@pytest.mark.parametrize(
    ("height", "width"), [(64, 96), (32, 32), (97, 151), (96, 256), (768, 1152)]
)
def test_any_size_has_the_same_weather(height: int, width: int) -> None:
    recipe = WeatherRecipe(height, width)
    frame = draw(recipe, 1979, 0)
    assert frame.fields.shape == (16, height, width)
    assert frame.fields.dtype == np.float32 and frame.boxes.dtype == np.int32
    check_boxes(frame.boxes, height, width)
    check_ranges(frame.fields.astype(np.float64))


def test_channels_are_in_their_units() -> None:
    assert list(RANGES) == list(CHANNELS)
    check_ranges(fields())
    means = dict(zip(CHANNELS, fields().mean(axis=(0, 2, 3)), strict=True))
    assert 1e-8 < means["PRECT"] < 1e-7
    assert 1.00e5 < means["PS"] < means["PSL"] < 1.02e5
    assert 215 < means["T200"] < 225
    assert 58 < means["ZBOT"] < 68


def test_offset_and_scale_are_near_mean_and_spread() -> None:
    mean, spread = fields().mean(axis=(0, 2, 3)), fields().std(axis=(0, 2, 3))
    assert (np.abs(mean - OFFSET) < 0.15 * SCALE).all()
    assert (np.abs(spread / SCALE - 1) < 0.15).all()
    stored = ((fields() - OFFSET[:, None, None]) / SCALE[:, None, None]).astype(np.float16)
    assert np.abs(stored).max() < 60
    back = stored.astype(np.float64) * SCALE[:, None, None] + OFFSET[:, None, None]
    assert (np.abs(back - fields()).max(axis=(0, 2, 3)) < 0.01 * SCALE).all()


def test_rain_is_rare_and_heavy() -> None:
    rain = fields()[:, CHANNELS.index("PRECT")]
    assert np.median(rain) < 0.6 * rain.mean()
    assert rain.max() > 15 * rain.mean()


def test_the_tropics_are_hot_and_wet_and_the_middle_latitudes_windy() -> None:
    zonal = dict(zip(CHANNELS, fields().mean(axis=(0, 3)), strict=True))
    away = np.abs(latitude(96)[:, 0])
    equator, middle, pole = away < 0.1, np.abs(away - 0.5) < 0.1, away > 0.9
    for name in ("TREFHT", "TS", "T500", "TMQ", "QREFHT", "Z200", "PRECT"):
        field = zonal[name]
        assert field[equator].min() > field[middle].max() > field[pole].max(), name
    assert zonal["U850"][middle].min() > 3  # westerlies
    assert zonal["U850"][equator].max() < -3  # trades


def within(one: str, other: str) -> float:
    """Return the correlation of two fields after removing their dependence on latitude."""
    return float(np.corrcoef(anomaly(one).ravel(), anomaly(other).ravel())[0, 1])


@pytest.mark.parametrize(
    ("one", "other", "least"),
    [
        ("PS", "PSL", 0.6),
        ("PSL", "Z1000", 0.85),
        ("TREFHT", "TS", 0.8),
        ("TMQ", "QREFHT", 0.5),
        ("U850", "UBOT", 0.7),
        ("V850", "VBOT", 0.7),
        ("TREFHT", "T500", 0.5),
        ("T500", "Z200", 0.5),
        ("TMQ", "PRECT", 0.2),
    ],
)
def test_fields_belong_together(one: str, other: str, least: float) -> None:
    assert within(one, other) > least


def test_wind_goes_round_lows_the_way_of_its_hemisphere() -> None:
    """Vorticity follows the curvature of pressure, with opposite signs in the hemispheres."""
    names = [CHANNELS.index(name) for name in ("PSL", "U850", "V850")]
    pressure, east, north = (fields()[:, number] for number in names)
    spin = np.gradient(north, axis=2) - np.gradient(east, axis=1)
    bowl = np.gradient(np.gradient(pressure, axis=2), axis=2)
    bowl += np.gradient(np.gradient(pressure, axis=1), axis=1)
    for rows, sign in ((slice(60, 84), 1), (slice(12, 36), -1)):
        assert sign * np.corrcoef(spin[:, rows].ravel(), bowl[:, rows].ravel())[0, 1] > 0.4


def test_noise_is_of_unit_spread_and_round_the_globe() -> None:
    drawn = [noise(generator(5, number), 192, 288, 6, 0.5) for number in range(8)]
    fields = np.stack([field.whole() for field in drawn])
    assert abs(fields.mean()) < 0.15 and 0.85 < fields.std() < 1.2
    field = fields[0]
    seam = np.abs(field[:, 0] - field[:, -1]).mean()
    assert seam < 1.5 * np.abs(np.diff(field, axis=1)).mean()


def test_rows_of_a_field_do_not_depend_on_how_many_are_asked_for() -> None:
    field = noise(generator(5), 97, 151, 6, 0.5)
    parts = [field.rows(slice(first, min(first + 10, 97))) for first in range(0, 97, 10)]
    np.testing.assert_array_equal(np.concatenate(parts), field.whole())


def test_fields_drawn_together_are_those_drawn_one_by_one() -> None:
    random = generator(5)
    alone = [noise(random, 64, 96, 8, 0.6).whole() for _ in range(3)]
    together = noises(generator(5), 3, 64, 96, 8, 0.6)
    np.testing.assert_array_equal(np.stack([field.whole() for field in together]), alone)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"height": 24}, "height is 24"),
        ({"width": 5000}, "width is 5000"),
        ({"height": 31}, "height is 31"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(settings: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        WeatherRecipe(**settings)


def test_facts_hold_the_recipe_and_the_version() -> None:
    assert WeatherRecipe(64, 96, 7).as_dict() == {
        "generator": "vflops.weather",
        "version": 1,
        "height": 64,
        "width": 96,
        "seed": 7,
    }


BYTES = "29b0ec3be2a6e2595588e4ae693807c48c86fa2d57e4f123e90ef4980231026d"
