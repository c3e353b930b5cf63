"""Training on packed images is training on their files, by the commands that are printed."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.data_images import image_folder
from tests.support.train_runs import weights
from vflops.data.images.pack_images import pack
from vflops.data.images.packed_images import PackedImages
from vflops.data.images.rescale_images import short_sides
from vflops.errors import UsageError
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job import DataFacts, JobRecord
from vflops.record.formats.job_events import DataRead
from vflops.workloads.image_classification import rescaled
from vflops.workloads.image_classification.settings import PROFILES
from vflops.workloads.image_classification.workload import ImageClassification

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]

SMALL = {
    "train.epochs": "2",
    "train.batch": "16",
    "train.device": "cpu",
    "train.precision": "fp32",
    "network.blocks": "[1]",
    "network.width": "4",
    "micro.benchmarks": "[]",
}


def striped(root: Path) -> Path:
    """Write images of 28 and more pixels whose classes are the directions of stripes."""
    rng = np.random.default_rng(5)
    for split, count in (("train", 24), ("val", 8)):
        for name in ("across", "down"):
            folder = root / split / name
            folder.mkdir(parents=True)
            for number in range(count):
                height, width = ((28, 28), (28, 28), (48, 64), (90, 60))[number % 4]
                y, x = np.mgrid[:height, :width] * (28 / min(height, width))
                waves = np.sin((y if name == "across" else x) * 0.9 + rng.uniform(0, 6))
                noise = rng.normal(0, 20, (height, width, 3))
                levels = (128 + 90 * waves[..., None] + noise).clip(0, 255).astype(np.uint8)
                suffix = "png" if number % 4 < 3 else "jpg"
                Image.fromarray(levels).save(folder / f"{number:02d}.{suffix}")
    return root


def next_command(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the words of the command that the last line of the output suggests."""
    assert done.returncode == 0, done.stderr
    text = re.sub(r"\s+", " ", done.stderr.rpartition("next: ")[2])
    return shlex.split(text.partition(" (")[0])[1:]


def test_the_printed_commands_train_as_the_files_do(tmp_path: Path, vflops: Vflops) -> None:
    striped(tmp_path / "my images")
    packing = next_command(vflops("data", "check", "my images"))
    assert packing[:3] == ["data", "pack", "my images"]
    training = next_command(vflops(*packing))
    assert training[:2] == ["run", "image-classification"]
    small = [word for item in SMALL.items() for word in ("--set", "=".join(item))]
    position = training.index("--data") + 1
    assert training[position].startswith("my images-packed-")
    results = []
    for data in (training[position], "my images"):
        words = [*training[:position], data, *training[position + 1 :], *small, "--quiet"]
        out = tmp_path / f"runs on {data}"
        done = vflops(*words, "--out", out)
        assert done.returncode in (0, 1), done.stderr  # 1: a rule is not met, such as `quiet`
        path = latest(out)
        assert path is not None, done.stderr
        folder = RunFolder.open(path)
        record = JobRecord.read(folder.job_file(1))
        quality = [event.data["quality"] for event in folder.history().events("evaluation", job=1)]
        (read,) = folder.history().events("data-read", job=1)
        splits = read.payload(DataRead).splits
        compared = {name: (split.compared, split.sha256) for name, split in splits.items()}
        known = record.data.contents or {}
        assert compared == {"train": (48, known["train"]), "validation": (16, known["validation"])}
        results.append((record.data.fingerprint, weights(folder), quality))
    packed, files = results
    assert packed == files  # the same pixels, then the same weights and the same quality


def prepared(data: Path, profile: str = "laptop", **changes: object) -> DataFacts:
    settings = PROFILES[profile]()
    train = settings.train.model_copy(update={"batch": 4})
    update = {"data": str(data), "target": 0.5, "train": train, **changes}
    return ImageClassification.prepare_data(
        settings.model_copy(update=update), lambda what, done, whole: None
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return striped(tmp_path_factory.mktemp("striped") / "images")


def pixel_hashes(facts: DataFacts) -> list[str]:
    splits = PackedImages.open(Path(facts.path)).index.splits.values()
    return [shard.sha256 for split in splits for shard in split.shards]


@pytest.mark.parametrize(
    ("profile", "side"),
    [("laptop", 32), ("laptop", 256), ("gpu", 256)],  # no image has a short side above 60
)
def test_packed_images_have_the_pixels_of_the_files(
    tmp_path: Path, source: Path, profile: str, side: int
) -> None:
    packed = prepared(pack(source, tmp_path / "packed", short_side=side, workers=1).path, profile)
    assert pixel_hashes(packed) == pixel_hashes(prepared(source, profile))


def test_images_that_were_packed_larger_are_reduced(tmp_path: Path, source: Path) -> None:
    facts = prepared(pack(source, tmp_path / "packed", short_side=32, workers=1).path, "tiny")
    assert facts.facts["short side"] == 16
    assert short_sides(PackedImages.open(Path(facts.path))) == (16, 16)


def test_a_refusal_names_the_command_that_packs_for_the_recipe(tmp_path: Path) -> None:
    source = image_folder(tmp_path / "my images")
    packed = pack(source, tmp_path / "packed", short_side=16, workers=1)
    with pytest.raises(UsageError) as refused:
        prepared(packed.path)
    assert f"vflops data pack '{source}' --short-side 32" in str(refused.value.hint)
    assert "--set size=16 --set resize=16" in str(refused.value.hint)
    assert prepared(packed.path, size=16, resize=16).facts["short side"] == 16


def test_what_is_too_large_to_rescale_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = pack(image_folder(tmp_path / "images"), tmp_path / "packed", short_side=64, workers=1)
    monkeypatch.setattr(rescaled, "_MAX_RESCALED_BYTES", 1000)
    with pytest.raises(UsageError, match="30 to 30 pixels, but the recipe needs 32") as refused:
        prepared(packed.path)
    assert "--short-side 32 --enlarge" in str(refused.value.hint)
