"""The figures of extreme weather: what is drawn, where it is drawn, and how large it is."""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import sys
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from vflops.extensions import import_object
from vflops.workloads.contract.exhibit import Figure
from vflops.workloads.contract.registry import workloads
from vflops.workloads.extreme_weather import colours
from vflops.workloads.extreme_weather.exhibit import figures
from vflops.workloads.extreme_weather.picture import HEIGHT, WIDTH

FRAME = 150_000
"""Bytes that a frame may have on a page."""
SHAPE = (96, 144)
SVG = "{http://www.w3.org/2000/svg}"
Arrays = dict[str, NDArray[Any]]


def arrays(**changed: Any) -> Arrays:
    """Two frames: moist in the south, a wind to the north; a cyclone that is found, a river not."""
    fields = np.zeros((2, 3, *SHAPE), dtype=np.float32)
    fields[:, 0] = np.linspace(60, 2, SHAPE[0])[:, None]  # the first row is the southernmost
    fields[:, 2] = 12.0
    truth_boxes = np.full((2, 15, 4), -1, dtype=np.float32)
    truth_labels = np.full((2, 15), -1, dtype=np.int64)
    truth_boxes[0, :2] = [[36, 60, 48, 72], [72, 12, 108, 36]]
    truth_labels[0, :2] = [1, 3]
    detections = np.zeros((2, 20, 6), dtype=np.float32)
    detections[..., 5] = -1
    detections[0, :3] = [
        [37, 61, 48, 72, 0.93, 1],
        [10, 10, 20, 20, 0.61, 0],
        [50, 50, 60, 60, 0.3, 2],
    ]
    recall = np.linspace(0, 1, 101)
    precision = np.stack(
        [np.where(recall <= 0.4, 0.9, 0.0), 1 - recall, np.ones(101), np.full(101, -1.0)]
    ).astype(np.float32)
    return {
        "fields": fields,
        "size": np.array(SHAPE),
        "frames": np.array([17, 203]),
        "truth_boxes": truth_boxes,
        "truth_labels": truth_labels,
        "detections": detections,
        "precision": precision,
        "average_precision": np.array([0.365, 0.5, 1.0, -1.0]),
        "truths": np.array([10, 2000, 3, 0]),
        **changed,
    }


def tree_of(figure: Figure) -> ElementTree.Element:
    assert figure.svg is not None
    return ElementTree.fromstring(figure.svg)


def boxes_of(figure: Figure) -> dict[str, dict[str, str]]:
    """The coloured rectangle of every box, by its words."""
    found: dict[str, dict[str, str]] = {}
    for group in tree_of(figure).iter(f"{SVG}g"):
        title, rects = group.find("{*}title"), group.findall("{*}rect")
        if title is not None and title.text:
            found[title.text] = dict(rects[-1].attrib)
    return found


def picture_of(figure: Figure) -> Image.Image:
    image = next(tree_of(figure).iter(f"{SVG}image"))
    kind, _, content = image.attrib["href"].partition(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(content))).convert("L")


class TestFrames:
    """A picture a frame."""

    def test_there_is_one_a_frame_up_to_four_and_then_the_curves(self) -> None:
        assert [figure.title for figure in figures(arrays())] == [
            "Frame 17 of the validation set",
            "Frame 203 of the validation set",
            "Precision over recall",
        ]
        many = {
            name: np.repeat(value, 3, axis=0)
            for name, value in arrays().items()
            if name in ("fields", "frames", "truth_boxes", "truth_labels", "detections")
        }
        assert len(figures(arrays(**many))) == 4 + 1

    def test_boxes_lie_where_the_grid_says_with_north_up(self) -> None:
        box = boxes_of(figures(arrays())[0])["tropical cyclone, true"]
        assert float(box["x"]) == pytest.approx(WIDTH * 36 / 144, abs=0.1)
        assert float(box["width"]) == pytest.approx(WIDTH * 12 / 144, abs=0.1)
        assert float(box["y"]) == pytest.approx(HEIGHT * (1 - 72 / 96), abs=0.1)
        assert float(box["height"]) == pytest.approx(HEIGHT * 12 / 96, abs=0.1)

    def test_boxes_refer_to_the_frame_not_to_the_thinned_field(self) -> None:
        thin = arrays()["fields"][:, :, ::4, ::4]
        whole = boxes_of(figures(arrays())[0])
        assert boxes_of(figures(arrays(fields=thin))[0]) == whole

    def test_true_boxes_are_solid_and_predicted_ones_dashed_in_the_same_colour(self) -> None:
        found = boxes_of(figures(arrays())[0])
        true = found["tropical cyclone, true"]
        predicted = found["tropical cyclone, predicted, score 0.93"]
        assert "stroke-dasharray" not in true and "stroke-dasharray" in predicted
        assert true["stroke"] == predicted["stroke"]
        assert found["atmospheric river, true"]["stroke"] != true["stroke"]
        assert "TC 0.93" in "".join(tree_of(figures(arrays())[0]).itertext())

    def test_weak_predictions_are_left_out_and_the_caption_counts_the_rest(self) -> None:
        figure = figures(arrays())[0]
        assert not any("extratropical" in words for words in boxes_of(figure))
        assert "1 of 2 true boxes found, 1 prediction without a true box." in figure.caption
        assert "below a score of 0.5 are left out" in figure.caption

    def test_a_prediction_of_another_class_or_place_finds_nothing(self) -> None:
        detections = arrays()["detections"].copy()
        detections[0, 0, 5] = 2
        found = figures(arrays(detections=detections))[0].caption
        assert "0 of 2 true boxes found, 2 predictions" in found
        detections[0, 0] = [42, 61, 54, 72, 0.9, 1]  # half of it beside: an IoU of a third
        assert "0 of 2 true boxes found" in figures(arrays(detections=detections))[0].caption

    def test_a_second_prediction_of_the_same_box_finds_nothing_more(self) -> None:
        detections = arrays()["detections"].copy()
        detections[0, 1] = [36, 60, 48, 72, 0.8, 1]
        caption = figures(arrays(detections=detections))[0].caption
        assert "1 of 2 true boxes found, 1 prediction without a true box." in caption

    def test_where_none_is_sure_the_surest_are_drawn_and_it_is_said(self) -> None:
        detections = arrays()["detections"].copy()
        detections[0, :3, 4] = [0.2, 0.15, 0.1]
        figure = figures(arrays(detections=detections))[0]
        assert "tropical cyclone, predicted, score 0.20" in boxes_of(figure)
        assert "No prediction reaches a score of 0.5" in figure.caption

    def test_a_frame_without_any_box_is_drawn(self) -> None:
        figure = figures(arrays())[1]
        assert boxes_of(figure) == {}
        assert "Nothing was predicted." in figure.caption

    def test_moist_places_are_light_and_the_first_row_is_at_the_bottom(self) -> None:
        picture = picture_of(figures(arrays())[0])
        top = picture.getpixel((100, 2))
        bottom = picture.getpixel((100, picture.height - 3))
        assert isinstance(top, int) and isinstance(bottom, int)
        assert top < 60 and bottom > 200

    @pytest.mark.parametrize(
        ("east", "north", "way"), [(0.0, 12.0, (0, -1)), (12.0, 0.0, (1, 0)), (-5.0, -5.0, (-1, 1))]
    )
    def test_arrows_point_where_the_wind_blows(
        self, east: float, north: float, way: tuple[int, int]
    ) -> None:
        fields = arrays()["fields"].copy()
        fields[:, 1], fields[:, 2] = east, north
        svg = figures(arrays(fields=fields))[0].svg
        assert svg is not None
        shafts = re.findall(r"M([\d.-]+),([\d.-]+)L([\d.-]+),([\d.-]+)M", svg)
        assert len(shafts) > 24 * 16 - 30  # all but the last of each path and the scale's
        x1, y1, x2, y2 = (float(shaft) for shaft in shafts[100])
        assert (np.sign(round(x2 - x1)), np.sign(round(y2 - y1))) == way

    def test_longer_arrows_are_stronger_winds(self) -> None:
        fields = arrays()["fields"].copy()
        fields[:, 2, :, 72:] = 3.0
        svg = figures(arrays(fields=fields))[0].svg
        assert svg is not None
        shafts = re.findall(r"M([\d.-]+),([\d.-]+)L[\d.-]+,([\d.-]+)M", svg)
        west, east = (
            max(float(a) - float(b) for x, a, b in shafts if low < float(x) / WIDTH < low + 0.3)
            for low in (0.1, 0.6)
        )
        assert west == pytest.approx(4 * east, abs=0.3)

    def test_it_says_in_words_what_it_shows(self) -> None:
        tree = tree_of(figures(arrays())[0])
        title = tree.find("{*}title")
        assert tree.attrib["role"] == "img"
        assert title is not None and title.text is not None
        assert "True: tropical cyclone, atmospheric river." in title.text
        assert "Predicted: tropical cyclone 0.93, tropical depression 0.61." in title.text
        words = "".join(tree.itertext())
        assert "kg/m²" in words and "m/s" in words

    def test_nothing_in_it_can_meet_the_ids_of_another_figure(self) -> None:
        assert not any("id" in element.attrib for element in tree_of(figures(arrays())[0]).iter())

    @pytest.mark.parametrize("kind", ["noise", "smooth", "not a number"])
    def test_a_whole_frame_stays_small(self, kind: str) -> None:
        rng = np.random.default_rng(1)
        fields = rng.normal(30, 15, (1, 3, 768, 1152)).astype(np.float32)
        if kind == "smooth":
            fields[:] = np.cumsum(np.cumsum(fields - 30, axis=2), axis=3) / 1000
        if kind == "not a number":
            fields[:] = np.nan
        figure = figures(arrays(fields=fields, size=np.array([768, 1152])))[0]
        assert figure.svg is not None
        assert len(figure.svg.encode()) <= FRAME
        assert picture_of(figure).width >= 200

    def test_equal_steps_of_water_look_equal(self) -> None:
        linear = (colours.palette() / 255.0) ** 2.2
        lightness = np.cbrt(linear @ [0.2126, 0.7152, 0.0722])
        steps = np.diff(lightness)
        assert (steps > 0).all()
        ninths = np.diff(lightness[:: len(lightness) // 8])
        assert ninths.max() < 1.6 * ninths.min()

    @pytest.mark.parametrize("name", sorted(arrays()))
    def test_an_array_that_is_missing_is_named(self, name: str) -> None:
        some = arrays()
        del some[name]
        with pytest.raises(ValueError, match=f"'{name}' is missing"):
            figures(some)


class TestCurves:
    """Precision over recall."""

    def rows(self) -> dict[str, list[tuple[float, float]]]:
        chart = figures(arrays())[-1].chart
        assert chart is not None
        found: dict[str, list[tuple[float, float]]] = {}
        for row in chart["data"]["values"]:
            found.setdefault(row["class"], []).append((row["recall"], row["precision"]))
        return found

    def test_every_class_with_true_boxes_has_a_curve_with_its_average(self) -> None:
        assert list(self.rows()) == [
            "tropical depression: AP 0.365, 10 true",
            "tropical cyclone: AP 0.500, 2,000 true",
            "extratropical cyclone: AP 1.000, 3 true",
        ]

    def test_a_curve_ends_where_it_falls_to_zero(self) -> None:
        first, second, third = self.rows().values()
        assert first[-2:] == [(0.4, 0.9), (0.41, 0.0)]
        assert (second[0], second[-1]) == ((0.0, 1.0), (1.0, 0.0))
        assert len(third) == 101

    def test_the_caption_has_the_mean_and_names_the_class_without_truths(self) -> None:
        caption = figures(arrays())[-1].caption
        assert f"its mean over the classes is {(0.365 + 0.5 + 1) / 3:.3f}" in caption
        assert "have no curve: atmospheric river" in caption


_IMPORT = "import sys; from vflops.extensions import import_object; import_object(sys.argv[1]); "
DRAWN = sorted(
    {"vflops.workloads.extreme_weather.exhibit:figures"}
    | {spec.exhibit for spec in workloads().values() if spec.exhibit}
)


@pytest.mark.parametrize("target", DRAWN)
def test_what_draws_an_exhibit_can_be_loaded_without_torch(target: str) -> None:
    assert callable(import_object(target))
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT + "print('torch' in sys.modules)", target],
        env={**os.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["False"], done.stderr


def test_a_workload_draws_nothing_unless_its_description_says_so() -> None:
    assert workloads()["image-classification"].exhibit is None
