"""Every reader of files that others wrote, and a folder with a good input of each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.audit_files import audit_record, part, write_audit
from tests.support.cluster_runs import cluster_run
from tests.support.data_climate import frames as climate_frames
from tests.support.data_climate import write_year
from tests.support.data_text import jsonl_file, write_bin
from tests.support.fuzzing import Reader
from tests.support.ranking_runs import Submitted, submit
from tests.support.search_runs import HandmadeSearch, one_worker
from vflops.config.profiles import tiny
from vflops.data.climate.box_rows import PUBLISHED
from vflops.data.climate.field_names import CHANNELS, MAX_BOXES
from vflops.data.climate.frame_index import FrameIndex
from vflops.data.climate.packed_frames import PackedFrames
from vflops.data.climate.years import open_year
from vflops.data.images.image_index import ImageIndex
from vflops.data.images.labels import read_labels
from vflops.data.images.packed_images import PackedImages
from vflops.data.local_copy import NotStagedError, PackedSource
from vflops.data.packed_index import StoredFile, hash_file, index_fingerprint
from vflops.data.split_table import write_table
from vflops.data.text.bin_shards import BinFolder
from vflops.data.text.check_text import check_shards, check_text
from vflops.data.text.index_shards import pack_shards
from vflops.data.text.packed_text import PackedText
from vflops.data.text.text_folder import TextFolder
from vflops.data.text.token_windows import TokenWindows
from vflops.errors import VflopsError
from vflops.launch import site
from vflops.publish.evidence.archive import pack
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.verify import verify
from vflops.publish.export.csv_table import series_csv
from vflops.publish.export.json_document import runs_json
from vflops.publish.ranking.audit_join import AuditSources, join_audits
from vflops.publish.ranking.entry import Entry
from vflops.publish.report.exhibits import load as load_exhibit
from vflops.publish.report.report_page import write_report
from vflops.record.folder import RunFolder, file_hash
from vflops.record.formats.graph import Graph
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Exhibited
from vflops.record.formats.measured_node import MeasuredNode
from vflops.record.formats.node import NodeRecord
from vflops.record.formats.system import SystemRecord
from vflops.record.log.imported_power import import_power
from vflops.record.log.tail import Tail
from vflops.record.log.telemetry_log import read as read_telemetry
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.check.findings import Findings
from vflops.results.evidence.manifest import read_manifest
from vflops.results.score.score_file import Score
from vflops.results.score.scoring import score
from vflops.studies.accept.reference import read_reference
from vflops.train.checkpoint import CheckpointRecord, Checkpoints
from vflops.train.ensemble.predictions import KeptPredictions, prediction_files, write_predictions
from vflops.train.state_file import pack as pack_state
from vflops.workloads.automl.candidate_buffer import CandidateBuffer
from vflops.workloads.automl.replay import SearchLedger
from vflops.workloads.automl.search_history import SearchHistory
from vflops.workloads.command.script_predictions import read_predictions
from vflops.workloads.command.settings import CommandSettings
from vflops.workloads.contract.run_settings import load

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
2026-01-31T12:00:01Z,,
1769864402,1.25,20
"""
LABELS = "ImageId,PredictionString\na,one 1 2 3 4\nb,two 5 6 7 8\n"
REFERENCE = """name = "Test"
contract = "c"
[task]
workload = "image-classification"
profile = "tiny"
[judgement]
confidence = 0.95
repeats = 3
max_repeats = 10
[[figure]]
name = "image-classification.throughput"
at_least = 100.0
unit = "samples/s"
tolerance = 0.05
[[figure]]
name = "quality"
at_most = 0.5
tolerance = 0.0
node_spread = 0.1
"""


def run_of(path: Path) -> Path:
    """Return the run folder of a file."""
    return next(
        ancestor
        for ancestor in path.parents
        if ancestor.parent.name in ("runs", "searches", "clusters")
    )


def contents(path: Path) -> Contents:
    """Return the contents of the run folder of a file."""
    return Contents(RunFolder.open(run_of(path)))


def _times(path: Path) -> list[float]:
    return [event.utc_s for log in contents(path).history.logs for event in log.events]


def _jobs(path: Path) -> list[Any]:
    jobs = contents(path).training_jobs
    return [(job.phases, job.evaluations, job.exhibits, job.started, job.devices) for job in jobs]


def _tailed(path: Path) -> list[str]:
    kinds: list[str] = []
    Tail(path, lambda kind, data: kinds.append(kind)).read()
    return kinds


def _searched(path: Path) -> Any:
    history = SearchHistory([job.logs for job in contents(path).workers])
    return history.span_s, history.pauses_s, history.clock_faults, history.candidates


def _buffered(path: Path) -> Any:
    buffer = CandidateBuffer(run_of(path))
    return [(buffer.get(turn), buffer.claimed_by(turn)) for turn in buffer.turns()]


def _imported(path: Path) -> Any:
    with suppress(FileNotFoundError):
        shutil.rmtree(path.parent / "telemetry")
    return read_telemetry(import_power(path.parent, path))


def _assigned(path: Path) -> object:
    return load(tiny(), None, path.read_bytes().decode(errors="replace").split("\n"))


def _packed_images(path: Path) -> object:
    folder = PackedImages.open(path.parent)
    return [folder.split(name).image(0) for name in folder.index.splits], folder.fingerprint


def _packed_frames(path: Path) -> object:
    folder = PackedFrames.open(path.parent)
    return [folder.split(name).fields(0) for name in folder.index.splits]


def _packed_text(path: Path) -> object:
    folder = PackedText.open(path.parent)
    for name in folder.index.splits:
        TokenWindows(folder.split(name), 3).read([0], np.empty((1, 4), np.int64))
    return folder.fingerprint


def _bin_shards(path: Path) -> object:
    return check_shards(BinFolder.open(path.parent), workers=1)


def _documents(path: Path) -> object:
    return check_text(TextFolder.open(path.parent), workers=1)


def _table(
    kind: type[PackedImages] | type[PackedFrames] | type[PackedText],
) -> Callable[[Path], object]:
    """Return a reader of a table whose size is the one in the index."""

    def read(path: Path) -> object:
        index = path.parent / "index.json"
        content = index.read_text()
        data = json.loads(content)
        data["splits"]["train"]["table"]["bytes"] = path.stat().st_size
        index.write_text(json.dumps(data))
        try:
            return kind.open(path.parent).split("train")
        finally:
            index.write_text(content)

    return read


def _staged(path: Path) -> object:
    with suppress(NotStagedError):  # the data is then read from where it is
        return PackedSource.open(path.parent, _fingerprint(path))
    return None


def _fingerprint(path: Path) -> str:
    """Return the fingerprint of an index, which a stranger can compute for any content."""
    try:
        return index_fingerprint(json.loads(path.read_bytes()))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return ""


def _checkpoint(path: Path) -> object:
    """Read a checkpoint whose marker has the right hash."""
    data = path.read_bytes()
    facts = {"step": 7, "sha256": sha256(data).hexdigest(), "size_bytes": len(data)}
    CheckpointRecord.model_validate(facts).write(path.with_suffix(".json"))
    return Checkpoints(path.parent).load()


def _exhibit(path: Path) -> object:
    size = path.stat().st_size
    return load_exhibit(path, Exhibited(file=path.name, sha256=file_hash(path), size_bytes=size))


def _script_predictions(path: Path) -> object:
    sections = (
        CommandSettings(quality="accuracy"),
        CommandSettings(quality="accuracy", combine="vote"),
        CommandSettings(quality="mse", better="lower"),
        CommandSettings(quality="mAP@0.5", combine="fusion"),
    )
    errors = []
    for section in sections:
        try:
            read_predictions(path, section)
        except VflopsError as error:
            errors.append(error)
    return errors


def _predictions(path: Path) -> object:
    kept = KeptPredictions.open(path.parent, prediction_files(path.parent))
    return kept.rows(0, len(kept))


def _year(path: Path) -> object:
    return open_year(path, 1979, PUBLISHED).source.frame(0)


def _extracted(path: Path) -> object:
    out = path.parent / "extracted"
    try:
        return extract(path, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _audited(path: Path) -> object:
    entry = Entry(place="a", source="", run=Submitted().id)
    joined = join_audits([entry], AuditSources(path.parent))
    assert joined.unusable or joined.entries[0].audited
    return joined


def _pages(path: Path) -> object:
    try:
        write_report(contents(path))
        return True
    finally:
        RunFolder.open(run_of(path)).report_file.unlink(missing_ok=True)


def _exported(path: Path) -> object:
    return runs_json([contents(path)]), series_csv([contents(path)])


READERS = {
    "settings": Reader("settings.toml", lambda path: load(tiny(), path, [])),
    "assignments": Reader("assignments", _assigned),
    "site": Reader("site.toml", lambda path: (one := site.load(path), one.time_limit_s)),
    "reference": Reader("reference.toml", read_reference),
    "power log": Reader("power.csv", _imported),
    "labels": Reader(
        "LOC_val_solution.csv", lambda path: read_labels([path.parent], ["a", "b"], ["one", "two"])
    ),
    "climate year": Reader("years/*.h5", _year),
    "packed images": Reader("packed/index.json", _packed_images),
    "packed frames": Reader("frames/index.json", _packed_frames),
    "staged index": Reader("packed/index.json", _staged),
    "image table": Reader("packed/train.npz", _table(PackedImages)),
    "frame table": Reader("frames/train.npz", _table(PackedFrames)),
    "packed text": Reader("text/index.json", _packed_text),
    "text table": Reader("text/train.npz", _table(PackedText)),
    "token shards": Reader("tokens/*.bin", _bin_shards),
    "documents": Reader("documents/*", _documents),
    "checkpoint": Reader("checkpoint/*.state", _checkpoint),
    "checkpoint marker": Reader(
        "checkpoint/*.json", lambda path: Checkpoints(path.parent).load(), 0.5
    ),
    "predictions": Reader("predictions/*.np[yz]", _predictions),
    "script predictions": Reader("script/*.npz", _script_predictions),
    "exhibit": Reader("exhibit.npz", _exhibit),
    "audit": Reader("audits/audit.json", _audited),
    "archive": Reader("archive.tar.bz2", _extracted, 0.1),
    "run": Reader("runs/*/run.json", lambda path: RunFolder.open(path.parent).record),
    "system": Reader("runs/*/system.json", SystemRecord.read),
    "score": Reader("runs/*/score.json", Score.read),
    "findings": Reader("runs/*/findings.json", Findings.read),
    "job": Reader("runs/*/jobs/1/job.json", JobRecord.read),
    "node": Reader("clusters/*/jobs/*/*/node-*.json", NodeRecord.read),
    "measured node": Reader("clusters/*/nodes/*.json", MeasuredNode.read),
    "graph": Reader("runs/*/graphs/*.json", Graph.read),
    "log": Reader("runs/*/jobs/*/*/events.jsonl", _times, 0.5),
    "job log": Reader("runs/*/jobs/*/*/events.jsonl", _jobs, 0.5),
    "search log": Reader("searches/*/jobs/*/*/events.jsonl", _searched, 0.5),
    "tail": Reader("runs/*/jobs/1/0/events.jsonl", _tailed),
    "telemetry": Reader("runs/*/jobs/1/0/telemetry.jsonl", read_telemetry),
    "manifest": Reader("runs/*/manifest.json", lambda path: read_manifest(path.parent)),
    "ledger": Reader("searches/*/ledger.json", SearchLedger.find),
    "buffer": Reader("searches/*/[bc]*/*.json", _buffered),
    "whole run": Reader("runs/*/**/*.json*", lambda path: score(contents(path)), 0.1),
    "whole search": Reader("searches/*/**/*.json*", lambda path: score(contents(path)), 0.1),
    "whole cluster": Reader("clusters/*/**/*.json*", lambda path: score(contents(path)), 0.02),
    "run rules": Reader("runs/*/**/*.json*", lambda path: check(contents(path)), 0.1),
    "search rules": Reader("searches/*/**/*.json*", lambda path: check(contents(path)), 0.1),
    "cluster rules": Reader("clusters/*/**/*.json*", lambda path: check(contents(path)), 0.02),
    "evidence": Reader("runs/*/**/*.json*", lambda path: verify(run_of(path)), 0.1),
    "exports": Reader("[rs]*/*/**/*.json*", _exported, 0.05),
    "report": Reader("[rs]*/*/jobs/*/*/*.json*", _pages, 0.0005, 1 << 40),
}


def write_good_inputs(root: Path) -> None:
    """Write a good input of every reader below ``root``."""
    _write_runs(root)
    for name, text in (
        ("settings.toml", SETTINGS),
        ("assignments", ASSIGNMENTS),
        ("site.toml", SITE),
        ("reference.toml", REFERENCE),
        ("power.csv", POWER),
        ("LOC_val_solution.csv", LABELS),
    ):
        (root / name).write_text(text)
    _write_packed(root)
    data = climate_frames(2, height=8, width=12)
    rows = np.full((2, MAX_BOXES, 5), -1, np.int32)
    rows[:, 0] = 1, 1, 5, 9, 1
    write_year(root / "years" / "climo_1979.h5", data, rows)
    write_year(root / "years" / "climo_1980.h5", data, rows, chunks=(1, 16, 4, 6), compression=1)
    state = {"step": 7, "weights": [torch.arange(6.0).reshape(2, 3), torch.ones(2, 1, 2).mT]}
    (root / "checkpoint").mkdir()
    (root / "checkpoint" / "step-000000007.state").write_bytes(pack_state(state).to_bytes())
    _checkpoint(root / "checkpoint" / "step-000000007.state")
    (root / "script").mkdir()
    classes, shares = np.arange(9) % 4, np.full((9, 4), 0.25)
    np.savez(root / "script" / "classes.npz", predictions=shares, labels=classes)
    detections = np.tile(np.array([0, 0, 4, 4, 0.5, 1]), (9, 2, 1))
    np.savez(
        root / "script" / "boxes.npz",
        predictions=detections,
        labels=classes[:, None],
        boxes=detections[:, :1, :4],
    )
    (root / "predictions").mkdir()
    for rank in range(2):
        places = np.arange(rank, 6, 2)
        probabilities = np.full((3, 4), 0.25, np.float32)
        write_predictions(root / "predictions", rank, places, probabilities, [places % 4])
    np.savez(root / "exhibit.npz", images=np.zeros((2, 3), np.uint8), labels=np.arange(2))


def _write_runs(root: Path) -> None:
    run = submit(root / "runs")
    check(Contents(run)).write(run.findings_file)
    pack(run, root / "archive.tar.bz2")
    write_audit(root / "audits", audit_record(run, part(0, 100), part(100, 110)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        search = HandmadeSearch(root / "searches", patch)
        shutil.copy(run.system_file, search.folder.system_file)
        search.worker(0, one_worker(search))
        search.end()
        cluster_run(root / "clusters", patch)


def _write_packed(root: Path) -> None:
    origin: dict[str, Any] = {"origin": "o", "synthetic": True, "recipe": {"seed": [1]}}
    images, frames = root / "packed", root / "frames"
    for folder in (images, frames):
        folder.mkdir()
    table = write_table(
        images,
        "train",
        {
            "offsets": np.array([0, 12], np.int64),
            "heights": np.array([2, 2], np.int32),
            "widths": np.array([2, 2], np.int32),
            "labels": np.array([0, 1], np.int64),
        },
    )
    split = {"images": 2, "table": table, "shards": [{**_shard(images, 24), "images": 2}]}
    facts = {"short_side": 2, "classes": ["one", "two"], "splits": {"train": split}}
    ImageIndex.model_validate(origin | facts).write(images / "index.json")
    labels = np.full((2, MAX_BOXES), -1, np.int64)
    boxes = np.zeros((2, MAX_BOXES, 4), np.float32)
    table = write_table(frames, "train", {"boxes": boxes, "labels": labels})
    shards = [{**_shard(frames, 2 * 4096), "frames": 2}]
    split = {"frames": 2, "boxes": 0, "table": table, "shards": shards}
    units = dict.fromkeys(("offset", "scale", "mean", "std"), [1.0] * len(CHANNELS))
    size = {"layout": "half", "height": 4, "width": 4}
    facts = {**size, **units, "years": {"train": [1979]}, "splits": {"train": split}}
    FrameIndex.model_validate(origin | facts).write(frames / "index.json")
    _write_text(root)


def _write_text(root: Path) -> None:
    for name in ("train", "val"):
        tokens = np.arange(40) % 7
        write_bin(root / "tokens" / f"{name}_0.bin", tokens)
    pack_shards(BinFolder.open(root / "tokens", 7, 0), root / "text", copy=True, workers=1)
    jsonl_file(root / "documents" / "lines.jsonl", ["one", "two\nlines", 'a "quoted" text'])
    (root / "documents" / "file.txt").write_text("a text of several words — and signs")


def _shard(folder: Path, size: int) -> dict[str, Any]:
    path = folder / "train-00000.bin"
    path.write_bytes(bytes(size))
    return StoredFile(file=path.name, bytes=size, sha256=hash_file(path)).model_dump()
