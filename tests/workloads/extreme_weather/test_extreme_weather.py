"""Extreme weather analytics meets what every workload must, and its own promises."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from vflops.data.batch_memory import BatchMemory
from vflops.data.climate import synthetic_weather
from vflops.data.climate.frame_writer import FrameWriter
from vflops.data.climate.pack_years import pack
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.weather import OFFSET, SCALE, WeatherRecipe, draw
from vflops.data.climate.year_split import split_years
from vflops.data.climate.years import ClimateYears
from vflops.errors import UsageError
from vflops.record.formats.job import DataFacts
from vflops.results.task.published_data import CLIMATE, data_fault
from vflops.testing.workloads import WorkloadConformance
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile, workload_settings
from vflops.workloads.contract.workload import Inputs
from vflops.workloads.extreme_weather.settings import WeatherSettings
from vflops.workloads.extreme_weather.workload import ExtremeWeather

SPEC = workload("extreme-weather")


def faultless(boxes: Tensor, labels: Tensor) -> Tensor:
    """Detections that are the truth, surest first."""
    surest = torch.linspace(0.9, 0.5, labels.shape[1]).expand(labels.shape)
    there = labels >= 0
    rows = torch.cat([boxes, surest[..., None], labels[..., None].float()], -1)
    nothing = torch.tensor([0.0, 0, 0, 0, 0, -1])
    rows = torch.where(there[..., None], rows, nothing)
    rest = settings().network.detections - labels.shape[1]
    return torch.cat([rows, nothing.expand(len(rows), rest, 6)], 1)  # as many as the model gives


class TestConformance(WorkloadConformance):
    spec = SPEC
    shorter = ("train.epochs=1",)
    overfit_steps = 15

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
    frames = dict.fromkeys(range(1990, 1994), 6)
    synthetic_weather.write_years(WeatherRecipe(64, 96, 2), folder, frames)
    return folder


def test_the_reference_split_is_by_year(years: Path) -> None:
    facts = prepared(f"data={years}", "target=0.1")
    assert (facts.train, facts.validation, facts.test) == (12, 6, 6)
    assert facts.facts["split"] == "reference"
    assert facts.facts["train years"] == "1990 1991"
    assert facts.facts["validation years"] == "1992"
    assert facts.facts["test years"] == "1993"
    assert facts.synthetic
    enlarged = {**facts.facts, "height": 768, "width": 1152}
    real = facts.model_copy(update={"synthetic": False, "facts": enlarged})
    assert str(data_fault(real, CLIMATE)).startswith("4 years with 12 + 6 + 6 samples, but")


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
    with pytest.raises(UsageError, match="no target quality"):
        prepared(f"data={years}")


def test_a_batch_larger_than_the_data_is_refused(years: Path) -> None:
    with pytest.raises(UsageError, match="12 training samples") as error:
        prepared(f"data={years}", "target=0.1", "train.batch=16")
    assert "train.batch=8" in str(error.value.hint)


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
    batch = made.samples("train").read(np.arange(facts.train), BatchMemory())
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
        inputs = made.inputs(
            made.samples("validation").read(places, BatchMemory()), None, torch.float32
        )
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
    inputs = made.inputs(
        made.samples("validation").read(places, BatchMemory()), None, torch.float32
    )
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


def test_a_folder_with_equal_names_sizes_and_times_is_another(years: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(years, first)
    shutil.copytree(years, second)
    for path in second.glob("*.h5"):
        with h5py.File(path, "r+") as file:
            rows = file["boxes"][...]
            rows[..., 4] = np.where(rows[..., 4] >= 0, (rows[..., 4] + 1) % 4, -1)
            file["boxes"][...] = rows
    for path in (*first.glob("*.h5"), *second.glob("*.h5")):
        os.utime(path, ns=(10**9, 10**9))
    one, other = (prepared(f"data={folder}", "target=0.1") for folder in (first, second))
    assert one.path != other.path and one.fingerprint != other.fingerprint
    labels = PackedFrames.open(Path(other.path)).split("validation").labels[0]
    with h5py.File(second / "climo_1992.h5") as file:
        assert labels.tolist() == file["boxes"][0, :, 4].tolist()
    for path in first.glob("*.h5"):  # fields alone differ, in another place
        with h5py.File(path, "r+") as file:
            file["images"][...] = 2 * file["images"][...]
        os.utime(path, ns=(10**9, 10**9))
    third = first.rename(tmp_path / "third")
    assert prepared(f"data={third}", "target=0.1").fingerprint != one.fingerprint


@pytest.mark.parametrize("wish", ["years.validation=[1990]", "years.test=1991", "box_order=xyxyc"])
def test_wishes_that_synthetic_frames_cannot_meet_are_refused(wish: str) -> None:
    with pytest.raises(UsageError, match=r"frames are synthetic: give --data DIR"):
        settings(wish)


def test_a_split_of_packed_years_cannot_be_changed(years: Path, tmp_path: Path) -> None:
    pack(years, tmp_path / "packed")
    data = f"data={tmp_path / 'packed'}", "target=0.1"
    for wish in ("years.validation=[1990]", "years.validation=[1992]"):  # no test year: another
        with pytest.raises(UsageError, match=r"is already split: train 1990 1991; "):
            prepared(*data, wish)
    with pytest.raises(UsageError, match="are already packed") as caught:
        prepared(*data, "box_order=xyxyc")
    assert "--box-order xyxyc" in str(caught.value.hint)
    same = prepared(*data, "years.validation=[1992]", "years.test=[1993]")
    assert same == prepared(*data)


def packed(folder: Path, boxes: dict[str, bool]) -> str:
    """Four frames for each split, with their boxes or without; the setting that names them."""
    with FrameWriter(
        folder,
        origin="o",
        layout="half",
        synthetic=True,
        recipe=None,
        height=64,
        width=96,
        offset=OFFSET,
        scale=SCALE,
        years={split: (1990 + number,) for number, split in enumerate(boxes)},
    ) as writer:
        for split, has_boxes in boxes.items():
            for number in range(4):
                frame = draw(WeatherRecipe(64, 96, 2), 1990, number)
                writer.add(split, frame.fields, frame.boxes[: None if has_boxes else 0])
        writer.finish()
    return f"data={folder}"


def test_packed_frames_without_a_split_are_refused(tmp_path: Path) -> None:
    data = packed(tmp_path / "packed", {"train": True})
    with pytest.raises(UsageError, match="has no frames for validation") as caught:
        prepared(data, "target=0.1")
    assert "--validation-years" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["train", "validation"])
def test_packed_frames_without_a_box_are_refused(tmp_path: Path, name: str) -> None:
    data = packed(tmp_path / "packed", {"train": name != "train", "validation": name == "train"})
    with pytest.raises(UsageError, match=f"has no box in the 4 frames of {name}: ") as caught:
        prepared(data, "target=0.1")
    assert f"--{name}-years" in str(caught.value.hint)


def said(error: UsageError) -> list[str]:
    """The settings that a hint names."""
    return re.findall(r"--set ([^\s;]+)", str(error.hint))


def test_the_cure_of_a_split_is_accepted(years: Path, tmp_path: Path) -> None:
    two = tmp_path / "two"
    two.mkdir()
    for year in (1990, 1991):
        shutil.copy(years / f"climo_{year}.h5", two)
    data = f"data={two}", "target=0.1"
    for wish in ((), ("years.train=1990",), ("years.test=1991",)):
        with pytest.raises(UsageError) as caught:
            prepared(*data, *wish)
        assert said(caught.value) == ["years.train=1990", "years.validation=1991"]
    facts = prepared(*data, *said(caught.value))
    assert facts.facts["train years"] == "1990" and facts.facts["validation years"] == "1991"


@pytest.mark.parametrize(
    ("text", "years"),
    [
        ("1990", (1990,)),
        ("[1990, 1992]", (1990, 1992)),
        ("1990,1992", (1990, 1992)),
        ("1990-1992", (1990, 1991, 1992)),
        ("1985,1990-1991", (1985, 1990, 1991)),
        ('"1985, 1990-1991"', (1985, 1990, 1991)),
    ],
)
def test_years_as_people_write_them(text: str, years: tuple[int, ...]) -> None:
    found = settings("data=d", "target=0.1", f"years.validation={text}").years
    assert found.validation == years and found.is_set


@pytest.mark.parametrize("text", ["x", "1992-1990", "1990.5", ""])
def test_years_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        settings("data=d", "target=0.1", f"years.validation={text}")


def test_the_cure_of_a_box_order_is_accepted(years: Path, tmp_path: Path) -> None:
    folder = tmp_path / "years"
    shutil.copytree(years, folder)
    for path in folder.glob("*.h5"):
        with h5py.File(path, "r+") as file:
            file["boxes"][...] = -1
            file["boxes"][:, :8] = [2, 3, 18, 29, 1]  # fits either order
    data = f"data={folder}", "target=0.1"
    with pytest.raises(UsageError, match="cannot be recognised from values") as caught:
        prepared(*data)
    assert "--box-order" not in str(caught.value.hint)
    assert said(caught.value) == ["box_order=yxyxc"]
    assert prepared(*data, *said(caught.value)).train == 12
    other = PackedFrames.open(Path(prepared(*data, "box_order=xyxyc").path)).split("train")
    assert other.boxes[0, 0].tolist() == [2, 3, 18, 29]


def test_synthetic_frames_follow_the_reference_split() -> None:
    facts = prepared("synthetic.train=4", "synthetic.validation=2", "synthetic.test=1")
    assert facts.facts["split"] == "reference"
    assert facts.facts["test years"] == "1981"
