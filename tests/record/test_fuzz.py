"""Arbitrary bytes: a reader of outside files returns what is valid, or says what is wrong.

Good files are damaged in the ways of disks, editors and strangers. A reader is one line of
``READERS``. The damage is the same each time; ``VFLOPS_FUZZ=5000`` tries that many others.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.ranking_runs import TASK, submit
from tests.support.search_runs import HandmadeSearch, one_worker
from vflops.config.profiles import tiny
from vflops.data.climate.field_names import CHANNELS
from vflops.data.climate.frame_index import FrameIndex
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.images.image_index import ImageIndex
from vflops.data.images.labels import read_labels
from vflops.data.images.packed_images import PackedImages
from vflops.errors import VflopsError
from vflops.launch import site
from vflops.publish.evidence.verify import verify
from vflops.record.files.document import Document
from vflops.record.folder import RunFolder
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.system import SystemRecord
from vflops.record.log.imported_power import import_power
from vflops.record.log.tail import Tail
from vflops.record.log.telemetry_log import read as read_telemetry
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.evidence.manifest import read_manifest
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.contract.run_settings import load

MORE = int(os.environ.get("VFLOPS_FUZZ", "0"))
TARGET = f'"target": {TASK.synthetic.target}'.encode()
SETTINGS = """seed = 7
count.models = ["resnet50", "resnet18"]
[micro]
budget_s = 20.5
precisions = "fp32"
[telemetry]
kernels = true
"""
ASSIGNMENTS = "seed=7\nmicro.budget_s=20.5\ncount.models=resnet50,resnet18\nmicro={ranks=3}"
SITE = """account = "a"
time_limit = "2-00:00"
directives = ["--qos=x"]
environment = { NAME = "value" }
[container]
image = "i.sif"
mounts = ["/data"]
"""
POWER = """time,power_kw,energy_j
2026-01-31T12:00:00Z,1.5,10
2026-01-31T12:00:01+01:00,,
1769864402,1.25,20
""".replace("+01:00", "Z")
LABELS = "ImageId,PredictionString\na,one 1 2 3 4\nb,two 5 6 7 8\n"


@dataclass(frozen=True)
class Reader:
    """The files that it reads, as one or several patterns, and how."""

    files: str
    read: Callable[[Path], object]


def run_of(path: Path) -> Path:
    return next(
        ancestor for ancestor in path.parents if ancestor.parent.name in ("runs", "searches")
    )


def contents(path: Path) -> Contents:
    return Contents(RunFolder.open(run_of(path)))


def times(path: Path) -> list[float]:
    return [event.utc_s for log in contents(path).history.logs for event in log.events]


def tailed(path: Path) -> list[str]:
    kinds: list[str] = []
    Tail(path, lambda kind, data: kinds.append(kind)).read()
    return kinds


def imported(path: Path) -> Any:
    with suppress(FileNotFoundError):
        shutil.rmtree(path.parent / "telemetry")
    return read_telemetry(import_power(path.parent, path))


def assigned(path: Path) -> object:
    return load(tiny(), None, path.read_bytes().decode(errors="replace").split("\n"))


READERS = {
    "settings": Reader("settings.toml", lambda path: load(tiny(), path, [])),
    "assignments": Reader("assignments", assigned),
    "site": Reader("site.toml", lambda path: (one := site.load(path), one.time_limit_s)),
    "power log": Reader("power.csv", imported),
    "labels": Reader(
        "LOC_val_solution.csv", lambda path: read_labels([path.parent], ["a", "b"], ["one", "two"])
    ),
    "packed images": Reader("packed/index.json", lambda path: PackedImages.open(path.parent).index),
    "packed frames": Reader("frames/index.json", lambda path: PackedFrames.open(path.parent).index),
    "run": Reader("runs/*/run.json", lambda path: RunFolder.open(path.parent).record),
    "system": Reader("runs/*/system.json", SystemRecord.read),
    "score": Reader("runs/*/score.json", Score.read),
    "job": Reader("runs/*/jobs/1/job.json", JobRecord.read),
    "graph": Reader("runs/*/graphs/*.json", Graph.read),
    "log": Reader("runs/*/jobs/*/*/events.jsonl", times),
    "tail": Reader("runs/*/jobs/1/0/events.jsonl", tailed),
    "telemetry": Reader("runs/*/jobs/1/0/telemetry.jsonl", read_telemetry),
    "manifest": Reader("runs/*/manifest.json", lambda path: read_manifest(path.parent)),
    "ledger": Reader("searches/*/ledger.json", SearchLedger.find),
    "whole run": Reader("runs/*/**/*.json*", lambda path: score(contents(path))),
    "whole search": Reader("searches/*/**/*.json*", lambda path: score(contents(path))),
    "rules": Reader("runs/*/**/*.json*", lambda path: check(contents(path))),
    "evidence": Reader("runs/*/**/*.json*", lambda path: verify(run_of(path))),
}
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, 1e308, -1e308, 0.5, float("nan"), float("inf")),
    *("", "x" * 5000, "\0", "../../x", "\ud800", "2026-13-45T99:99:99", "nan", "[]"),
    *([], {}, [[]], {"": None}, [None] * 3, [0, "1", {}]),
)
"""Values in place of the expected ones."""
TEXTS = (
    *(b"", b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xef\xbb\xbf", b'"\\ud800"', b'"\\u0000"'),
    *(b"[" * 20_000, b'{"a":' * 20_000, b"[" * 900 + b"]" * 900, b"a." * 3000 + b"a=1\n"),
    *(b"9" * 5000, b"0x" + b"f" * 5000, b"NaN", b"1e999", b"-1", b"1e308", b"true", b"{}", b"[]"),
    *(b"0001-01-01T00:00:00+23:00", b"9999-12-31T23:59:59-23:00", b"1969-01-01", b"25:00"),
    *(b"\n", b"\r", b'"', b"'", b",", b",,", b"=", b".", b" ", b"x" * 200_000),
)
"""Bytes in place of the expected ones."""


def spliced(content: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(content) + 1)
    return content[:start] + draw.choice(TEXTS) + content[start + draw.choice((0, 1, 8)) :]


def cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content) + 1)]


def another_word(content: bytes, draw: random.Random) -> bytes:
    """Replace a key or a value."""
    words = [match.span() for match in re.finditer(rb"[^\s=,:\[\]{}]+", content)]
    start, end = draw.choice(words)
    return content[:start] + draw.choice(TEXTS) + content[end:]


def another_part(content: bytes, draw: random.Random) -> bytes:
    """Remove, repeat or replace a part of a JSON document, or of one line of a log."""
    lines = content.split(b"\n")
    whole = lines[0] == b"{"
    at = draw.randrange(len(lines) - 1 or 1)
    data = json.loads(content if whole else lines[at])
    part: Any = data
    while True:
        key = draw.choice(list(part) if isinstance(part, dict) else range(len(part)))
        inner = part[key]
        if not isinstance(inner, dict | list) or not inner or draw.random() < 0.15:
            break
        part = inner
    if draw.random() < 0.2:
        del part[key]
    elif isinstance(part, list) and draw.random() < 0.2:
        part.append(inner)
    else:
        part[key] = draw.choice(VALUES)
    made = json.dumps(data).encode()
    return made if whole else b"\n".join([*lines[:at], made, *lines[at + 1 :]])


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with every kind of file."""
    root = tmp_path_factory.mktemp("good")
    submit(root / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        run = HandmadeSearch(root / "searches", patch)
        shutil.copy(next(root.glob("runs/*/system.json")), run.folder.system_file)
        run.worker(0, one_worker(run))
        run.end()
    (root / "settings.toml").write_text(SETTINGS)
    (root / "assignments").write_text(ASSIGNMENTS)
    (root / "site.toml").write_text(SITE)
    (root / "power.csv").write_text(POWER)
    (root / "LOC_val_solution.csv").write_text(LABELS)
    for folder in ("packed", "frames"):
        (root / folder).mkdir()
        for name in ("train-00000.bin", "train.npz"):
            (root / folder / name).write_bytes(b"")
    facts: dict[str, Any] = {"bytes": 0, "sha256": "0" * 64}
    table, shard = {"file": "train.npz", **facts}, {"file": "train-00000.bin", **facts}
    origin: dict[str, Any] = {"origin": "o", "synthetic": True, "recipe": {"seed": [1]}}
    split = {"images": 0, "table": table, "shards": [{**shard, "images": 0}]}
    images = {"short_side": 8, "classes": ["one", "two"], "splits": {"train": split}}
    ImageIndex.model_validate(origin | images).write(root / "packed" / "index.json")
    split = {"frames": 0, "boxes": 0, "table": table, "shards": [{**shard, "frames": 0}]}
    units = dict.fromkeys(("offset", "scale", "mean", "std"), [1.0] * len(CHANNELS))
    size = {"layout": "half", "height": 4, "width": 4}
    frames = {**size, **units, "years": {"train": [1979]}, "splits": {"train": split}}
    FrameIndex.model_validate(origin | frames).write(root / "frames" / "index.json")
    return root


def matching(root: Path, reader: Reader) -> list[Path]:
    return sorted(path for path in root.glob(reader.files) if path.is_file())


@pytest.mark.parametrize("name", READERS)
def test_what_is_not_damaged_is_read(good: Path, name: str) -> None:
    for path in matching(good, READERS[name])[:1]:
        assert READERS[name].read(path)
        break
    else:
        pytest.fail(f"no file is like {READERS[name].files}")


@pytest.mark.parametrize("name", READERS)
@settings(
    max_examples=MORE or 40,
    derandomize=not MORE,
    database=None,
    deadline=timedelta(seconds=20),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32))
def test_what_is_damaged_is_valid_or_refused(good: Path, name: str, seed: int) -> None:
    reader, draw = READERS[name], random.Random(seed)
    path = draw.choice(matching(good, reader))
    content = path.read_bytes()
    ways = [spliced, cut, another_word, *[another_part] * 3 * (".json" in path.suffix)]
    path.write_bytes(draw.choice(ways)(content, draw))
    try:
        result = reader.read(path)
        if isinstance(result, Document):
            result.to_json()
    except VflopsError as error:
        assert len(error.message) <= 4000
        error.message.encode()
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("settings", b"seed = 7", b"seed = 0x" + b"f" * 5000, "seed = a huge int"),
        ("settings", b"seed = 7", b"seed = " + b"9" * 5000, "is not TOML"),
        ("settings", b"seed = 7", b"seed = " + b"[" * 20_000, "is not TOML"),
        ("settings", b"seed = 7", b"seed." + b"a." * 5000 + b"a = 1", "seed = a huge dict"),
        ("assignments", b"seed=7", b"seed=" + b"[" * 20_000, "setting seed = "),
        ("site", b'account = "a"', b"account." + b"a." * 5000 + b"a = 1", "account = a huge dict"),
        ("site", b"2-00:00", b"9" * 5000 + b"-00:00", "time_limit = "),
        ("power log", b"2026-01-31T12:00:00Z", b"0001-01-01T00:00:00+23:00", "2001 and 2286"),
        ("power log", b"1.5", b"1e308", "expected a number that is at least 0"),
        ("labels", b"one 1 2 3 4", b" ", "has no class for a"),
        ("labels", b"one 1 2 3 4", b"x" * 200_000, "is not CSV"),
        ("labels", b"one 1 2 3 4", b"9" * 5000, "names the class"),
        ("packed images", b'"train.npz"', b'"\\u0000"', "not a plain file name"),
        ("system", b'"2.13.0"', b'"\\ud800"', "is not JSON"),
        ("ledger", b'"fail"', b'"\\ud800"', "is not JSON"),
        ("log", b'"utc": "2', b'"utc": "x', "expected a time"),
    ],
)
def test_what_once_had_no_message(
    good: Path, name: str, old: bytes, new: bytes, expected: str
) -> None:
    path = matching(good, READERS[name])[0]
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))
    try:
        with pytest.raises(VflopsError, match=re.escape(expected)):
            READERS[name].read(path)
    finally:
        path.write_bytes(content)


@pytest.mark.parametrize(
    ("job", "old", "new", "expected"),
    [
        ("searches/*/jobs/1/job.json", b'"tune_from"', b'"tune_form"', "search.tune_form"),
        ("runs/*/jobs/1/job.json", b'"exponent": 5', b'"exponent": -1', "exponent is -1"),
        ("runs/*/jobs/1/job.json", TARGET, b'"target": -1', "target is -1"),
    ],
)
def test_a_job_that_no_run_plans_has_no_score(
    good: Path, job: str, old: bytes, new: bytes, expected: str
) -> None:
    path = next(good.glob(job))
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    try:
        with pytest.raises(VflopsError, match=expected):
            score(contents(path))
    finally:
        path.write_bytes(content)
