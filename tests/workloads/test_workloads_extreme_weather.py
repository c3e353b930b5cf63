"""Extreme weather analytics meets what every workload must, and its own promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vflops.config.profiles import profile
from vflops.config.settings import load, workload_settings
from vflops.data.climate import synthetic
from vflops.data.climate.frames import PackedFrames
from vflops.data.climate.pack import pack
from vflops.data.climate.split import split_years
from vflops.data.climate.weather import WeatherRecipe
from vflops.data.climate.years import ClimateYears
from vflops.data.room import Room
from vflops.errors import UsageError
from vflops.record.training import DataFacts
from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.extreme_weather.settings import WeatherSettings
from vflops.workloads.extreme_weather.workload import ExtremeWeather
from vflops.workloads.registry import workload
from vflops.workloads.workload import Inputs

SPEC = workload("extreme-weather")


def faultless(boxes: Tensor, labels: Tensor) -> Tensor:
    """Detections that are the truth, surest first."""
    surest = torch.linspace(0.9, 0.5, labels.shape[1]).expand(labels.shape)
    there = labels >= 0
    rows = torch.cat([boxes, surest[..., None], labels[..., None].float()], -1)
    return torch.where(there[..., None], rows, torch.tensor([0.0, 0, 0, 0, 0, -1]))


class TestConformance(WorkloadConformance):
    spec = SPEC

    def perfect(self, inputs: Inputs) -> Tensor:
        return faultless(inputs[1], inputs[2])


def settings(*assignments: str) -> WeatherSettings:
    found = workload_settings(load(profile("tiny", [SPEC.name]), None, assignments))[SPEC.name]
    assert isinstance(found, WeatherSettings)
    return found


def prepared(*assignments: str) -> DataFacts:
    return ExtremeWeather.prepare_data(settings(*assignments), lambda text, done, whole: None)


@pytest.fixture(scope="module")
def years(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four years of six frames, as a user has them."""
    folder = tmp_path_factory.mktemp("climate") / "years"
    synthetic.write_years(WeatherRecipe(64, 96, 2), folder, dict.fromkeys(range(1990, 1994), 6))
    return folder


def test_the_reference_split_is_by_year(years: Path) -> None:
    facts = prepared(f"data={years}", "target=0.1")
    assert (facts.train, facts.validation, facts.test) == (12, 6, 6)
    assert facts.facts["split"] == "reference"
    assert facts.facts["train years"] == "1990 1991"
    assert facts.facts["validation years"] == "1992"
    assert facts.facts["test years"] == "1993"
    assert facts.synthetic


def test_an_own_split_is_recorded(years: Path) -> None:
    facts = prepared(f"data={years}", "target=0.1", "years.validation=[1990]", "years.test=[1991]")
    assert facts.facts["split"] == "own"
    assert facts.facts["validation years"] == "1990"
    assert facts.facts["train years"] == "1992 1993"


def test_a_split_of_years_that_are_not_there_is_refused(years: Path) -> None:
    with pytest.raises(UsageError, match="1889"):
        prepared(f"data={years}", "target=0.1", "years.validation=[1889]")


def test_packed_years_and_packed_on_the_spot_are_the_same(years: Path, tmp_path: Path) -> None:
    folder = ClimateYears.open(years)
    pack(folder, tmp_path / "packed", split=split_years(years, folder.numbers))
    on_the_spot = prepared(f"data={years}", "target=0.1")
    before = prepared(f"data={tmp_path / 'packed'}", "target=0.1")
    assert before.fingerprint == on_the_spot.fingerprint


def test_a_target_of_own_years_must_be_given(years: Path) -> None:
    with pytest.raises(UsageError, match=r"target=0\.35"):
        settings(f"data={years}")


def test_a_batch_larger_than_the_data_is_refused(years: Path) -> None:
    with pytest.raises(UsageError, match="12 training samples") as error:
        prepared(f"data={years}", "target=0.1", "train.batch=16")
    assert "train.batch=8" in str(error.value.cure)


def test_frames_that_changed_are_refused(years: Path, tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    pack(years, packed)
    facts = prepared(f"data={packed}", "target=0.1")
    shard = packed / "train-00000.bin"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(UsageError, match=r"train-00000\.bin"):
        ExtremeWeather.verify_data(facts)


@pytest.mark.parametrize("layout", ["half", "raw"])
def test_fields_are_normalised_by_the_training_frames(
    years: Path, tmp_path: Path, layout: str
) -> None:
    pack(years, tmp_path / "packed", layout=layout)  # type: ignore[arg-type]
    facts = prepared(f"data={tmp_path / 'packed'}", "target=0.1")
    made = ExtremeWeather.create(settings(), facts)
    batch = made.samples("train").read(np.arange(facts.train), Room())
    fields = made.inputs(batch, None, torch.float32)[0]
    assert fields.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(fields.mean((0, 2, 3)), torch.zeros(16), atol=2e-3, rtol=0)
    torch.testing.assert_close(fields.std((0, 2, 3)), torch.ones(16), atol=2e-3, rtol=0)
    split = PackedFrames.open(tmp_path / "packed").split("train")
    index = PackedFrames.open(tmp_path / "packed").index
    tmq = (split.fields(3)[6] - index.mean[6]) / index.std[6]
    np.testing.assert_allclose(fields[3, 6].numpy(), tmq, atol=5e-3)


def test_the_exhibit_shows_the_truth_of_its_frames(years: Path) -> None:
    facts = prepared(f"data={years}", "target=0.1")
    made = ExtremeWeather.create(settings(), facts)
    split = PackedFrames.open(Path(facts.path)).split("validation")
    meters = [made.meter(torch.device("cpu")) for _ in range(2)]
    for number, meter in enumerate(meters):  # two ranks, every other frame
        places = np.arange(number, 6, 2)
        inputs = made.inputs(made.samples("validation").read(places, Room()), None, torch.float32)
        meter.update(faultless(inputs[1], inputs[2]), inputs, torch.ones(3, dtype=torch.bool))
    summaries = [meter.summary() for meter in meters]
    assert made.quality(summaries) == pytest.approx(1.0)
    arrays = made.exhibit(summaries)
    assert arrays["frames"].tolist() == [0, 2, 4]
    np.testing.assert_array_equal(arrays["truth_boxes"], split.boxes[[0, 2, 4]])
    np.testing.assert_allclose(arrays["fields"][1], split.fields(2)[[6, 9, 11]], rtol=1e-3)
    assert arrays["average_precision"][arrays["truths"] > 0] == pytest.approx(1.0)


def test_a_sample_that_fills_a_batch_up_is_not_a_second_frame(years: Path) -> None:
    facts = prepared(f"data={years}", "target=0.1")
    made = ExtremeWeather.create(settings(), facts)
    places = np.minimum(np.arange(8), 5)
    inputs = made.inputs(made.samples("validation").read(places, Room()), None, torch.float32)
    meter = made.meter(torch.device("cpu"))
    meter.update(faultless(inputs[1], inputs[2]), inputs, torch.arange(8) < 6)
    assert made.quality([meter.summary()]) == pytest.approx(1.0)


def test_the_reference_is_the_published_one() -> None:
    reference = SPEC.profile("reference")
    assert isinstance(reference, WeatherSettings)
    assert (reference.train.epochs, reference.target, SPEC.quality.exponent) == (50, 0.35, 10)
    model = ExtremeWeather.create(
        reference,
        DataFacts(
            path="",
            synthetic=True,
            fingerprint="",
            train=1,
            validation=1,
            facts={"height": 768, "width": 1152},
        ),
    ).model()
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv2d)]
    assert convolutions[0].in_channels == 16
    body = sum(p.numel() for n, p in model.named_parameters() if n.startswith("body"))
    # ResNet-50's 25 557 032 less its classifier, and 13 channels more at the stem.
    assert body == 25_557_032 - (2048 * 1000 + 1000) + 13 * 64 * 49
