"""Packed data is staged to the storage of a node once and completely, or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import psutil
import pytest

from vflops.config.profiles import tiny
from vflops.data import local_copy
from vflops.data.images.image_writer import ImageWriter
from vflops.data.images.packed_images import PackedImages
from vflops.data.local_copy import LocalCopy
from vflops.data.packed_index import INDEX, StoredFile, hash_file
from vflops.data.staging import read_staged, stage, stage_attempt, staged_nodes
from vflops.errors import FolderError
from vflops.launch.local.local_launcher import LocalLauncher
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, Goal, JobRecord
from vflops.record.formats.job_events import Staged
from vflops.run import jobs as training
from vflops.workloads.contract.run_settings import load, profile

SIDE = 100
STAGE = """
import sys
from pathlib import Path
from vflops.data import local_copy
from vflops.data.staging import stage
{before}
source, fingerprint, local, slots, readers = sys.argv[1:]
say = lambda text: print(text, file=sys.stderr, flush=True)
print(stage(Path(source), fingerprint, local, Path(slots), int(readers), say).model_dump_json())
"""
KILLED_AFTER_TWO_FILES = """
import os, signal
local_copy._FILES_AT_ONCE = 1
sync, synced = os.fsync, []
def fsync(descriptor):
    synced.append(descriptor)
    if len(synced) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    sync(descriptor)
os.fsync = fsync
"""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> PackedImages:
    """Forty images in five shards and two tables, 1.2 MB."""
    path = tmp_path_factory.mktemp("packed") / "images"
    rng = np.random.default_rng(1)
    names, size = ("cat", "dog"), SIDE * SIDE * 3
    with ImageWriter(
        path, origin="noise", short_side=SIDE, classes=names, shard_bytes=8 * size
    ) as writer:
        for number in range(40):
            image = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
            writer.add(image, number % 2, split="train" if number < 32 else "val")
    return PackedImages.open(path)


class Node:
    """A node's storage, next to a run folder that all nodes share."""

    def __init__(self, packed: PackedImages, local: Path, slots: Path) -> None:
        self.packed, self.local, self.slots = packed, local, slots
        self.said: list[str] = []

    @property
    def copy(self) -> Path:
        return self.local / f"vflops-{self.packed.fingerprint[:16]}"

    def stage(self, readers: int = 8) -> Staged:
        source, mark = self.packed.path, self.packed.fingerprint
        return stage(source, mark, str(self.local), self.slots, readers, self.said.append)

    def process(self, before: str = "", readers: int = 8) -> subprocess.Popen[str]:
        arguments = (self.packed.path, self.packed.fingerprint, self.local, self.slots, readers)
        return subprocess.Popen(
            [sys.executable, "-c", STAGE.format(before=before), *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.packed.index.files())


@pytest.fixture
def node(packed: PackedImages, tmp_path: Path) -> Node:
    (tmp_path / "local").mkdir()
    return Node(packed, tmp_path / "local", tmp_path / "run" / "staging")


def outcome(process: subprocess.Popen[str]) -> Staged:
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return Staged.model_validate_json(out)


def locked(path: Path) -> IO[str]:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def said(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.readline()


def spoil(path: Path) -> None:
    """Change a byte but keep size and modification time."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(bytes([file.read(1)[0] ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_the_copy_is_the_data_and_nothing_else(node: Node) -> None:
    actual = node.stage()
    assert (actual.where, actual.folder, actual.reason) == ("local", str(node.copy), None)
    assert actual.bytes == node.bytes > 1_000_000
    assert actual.bandwidth == pytest.approx(actual.bytes / actual.seconds)
    named = {file.file for file in node.packed.index.files()}
    assert {path.name for path in node.copy.iterdir()} == {*named, INDEX, "staged.json"}
    copy = PackedImages.open(node.copy)
    assert copy.fingerprint == node.packed.fingerprint
    assert copy.verify() == node.bytes


def test_a_copy_that_is_there_is_not_read_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.stage()

    def refuse(path: Path) -> str:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr(local_copy, "hash_file", refuse)
    actual = node.stage()
    assert (actual.where, actual.bytes, actual.bandwidth) == ("local", 0, None)
    assert actual.reason == "it was there already"


def test_two_processes_of_a_node_copy_once_and_the_one_that_waits_says_why(node: Node) -> None:
    lock = locked(node.copy.with_suffix(".lock"))
    lock.write("4711")
    lock.flush()
    processes = [node.process(), node.process()]
    for process in processes:
        assert "waiting for process 4711, which copies the data to" in said(process)
    lock.close()
    actual = [outcome(process) for process in processes]
    assert sorted(staged.bytes for staged in actual) == [0, node.bytes]
    assert all(staged.where == "local" and staged.waited_s > 0 for staged in actual)


def test_a_copy_that_was_killed_is_not_there_and_goes_on_where_it_was(node: Node) -> None:
    process = node.process(before=KILLED_AFTER_TWO_FILES)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (node.copy / INDEX).exists()
    files = node.packed.index.files()
    kept = [file for file in files if (node.copy / file.file).exists()]
    assert len(kept) == 2
    actual = node.stage()
    assert actual.bytes == node.bytes - sum(file.bytes for file in kept)
    assert PackedImages.open(node.copy).verify() == node.bytes
    assert not list(node.copy.glob(".*"))


def test_a_copy_that_is_being_mended_is_not_there(node: Node) -> None:
    node.stage()
    for file in node.packed.index.files():
        (node.copy / file.file).unlink()
    process = node.process(before=KILLED_AFTER_TWO_FILES)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (node.copy / INDEX).exists()


@pytest.mark.parametrize("damage", ["a byte", "cut", "gone", "no index"])
def test_a_damaged_file_alone_is_copied_again(node: Node, damage: str) -> None:
    node.stage()
    file = node.packed.index.files()[1]
    path = node.copy / (INDEX if damage == "no index" else file.file)
    if damage == "a byte":
        spoil(path)
    elif damage == "cut":
        os.truncate(path, 10)
    else:
        path.unlink()
    actual = node.stage()
    assert actual.bytes == (0 if damage == "no index" else file.bytes)
    assert PackedImages.open(node.copy).verify() == node.bytes


def test_a_file_that_was_only_touched_is_read_once_and_kept(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.stage()
    os.utime(node.copy / "train-00000.bin")
    hashed: list[str] = []

    def note(path: Path) -> str:
        hashed.append(path.name)
        return hash_file(path)

    monkeypatch.setattr(local_copy, "hash_file", note)
    assert [node.stage().bytes, node.stage().bytes] == [0, 0]
    assert hashed == ["train-00000.bin"]


def test_damaged_data_is_refused_and_makes_no_copy(node: Node, tmp_path: Path) -> None:
    shutil.copytree(node.packed.path, tmp_path / "damaged")
    spoil(tmp_path / "damaged" / "train-00002.bin")
    bad = Node(PackedImages.open(tmp_path / "damaged"), node.local, node.slots)
    with pytest.raises(FolderError, match=r"train-00002\.bin differs from what was packed"):
        bad.stage()
    assert not (bad.copy / INDEX).exists()


def test_other_copies_are_left_alone(node: Node) -> None:
    other = node.local / "vflops-0123456789abcdef"
    other.mkdir()
    (other / "train-00000.bin").write_bytes(b"other")
    node.stage()
    assert (other / "train-00000.bin").read_bytes() == b"other"
    assert [path.name for path in other.iterdir()] == ["train-00000.bin"]


def test_too_little_room_leaves_nothing_behind_and_says_so(
    packed: PackedImages, small_disk: Path, tmp_path: Path
) -> None:
    node = Node(packed, small_disk, tmp_path / "staging")
    actual = node.stage()
    assert (actual.where, actual.folder, actual.bytes) == ("shared", str(packed.path), 0)
    assert actual.reason is not None
    assert actual.reason == f"{small_disk} has 1.04 MB free, but 68.3 MB are needed"
    assert node.said == [f"the data is read from {packed.path}: {actual.reason}"]
    assert [path.suffix for path in small_disk.iterdir()] == [".lock"]


def test_a_disk_that_fills_while_copying_is_emptied_again(
    packed: PackedImages, small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copy, "free_bytes", lambda folder: 1 << 40)  # others are quicker
    actual = Node(packed, small_disk, tmp_path / "staging").stage()
    assert actual.where == "shared"
    assert actual.reason is not None and "No space left on device (" in actual.reason
    assert [path.suffix for path in small_disk.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("local", "reason"),
    [
        ("", "the path of the node's local storage is empty"),
        ("/dev/null/x", "Not a directory"),
        ("/no/such/place", "No such file or directory"),
    ],
)
def test_storage_that_is_not_there_is_said(node: Node, local: str, reason: str) -> None:
    packed = node.packed
    actual = stage(packed.path, packed.fingerprint, local, node.slots, 8, node.said.append)
    assert (actual.where, actual.folder) == ("shared", str(packed.path))
    assert actual.reason is not None and reason in actual.reason


def test_data_that_is_not_packed_or_another_is_read_where_it_is(node: Node) -> None:
    args = (str(node.local), node.slots, 8, node.said.append)
    plain = stage(node.local, "f" * 64, *args)
    other = stage(node.packed.path, "f" * 64, *args)
    assert [plain.where, other.where] == ["shared", "shared"]
    assert "only packed data is staged" in str(plain.reason)
    assert "is not the index that the job started with" in str(other.reason)
    assert not list(node.local.iterdir())


def test_no_more_nodes_copy_at_once_than_may(
    packed: PackedImages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting, busy, most = threading.Lock(), 0, 0
    original = LocalCopy.complete

    def complete(self: LocalCopy, missing: Sequence[StoredFile]) -> None:
        nonlocal busy, most
        with counting:
            busy += 1
            most = max(most, busy)
        time.sleep(0.1)
        original(self, missing)
        with counting:
            busy -= 1

    monkeypatch.setattr(LocalCopy, "complete", complete)
    nodes = [Node(packed, tmp_path / f"node-{k}", tmp_path / "staging") for k in range(5)]
    with ThreadPoolExecutor(5) as pool:
        actual = list(pool.map(lambda node: node.stage(readers=2), nodes))
    assert most == 2
    assert [staged.bytes for staged in actual] == [nodes[0].bytes] * 5
    waited = [node for node in nodes if node.said]
    assert len(waited) == 3
    assert "2 nodes, the limit of bagging.staging_readers, are copying data" in waited[0].said[0]


def test_a_turn_is_free_again_when_its_node_dies(node: Node) -> None:
    slot = locked(node.slots / "slot-0.lock")
    process = node.process(readers=1)
    assert "waiting: 1 nodes, the limit of" in said(process)
    slot.close()
    actual = outcome(process)
    assert actual.bytes == node.bytes
    assert actual.waited_s > 0


@pytest.fixture
def job(packed: PackedImages, tmp_path: Path) -> tuple[RunFolder, JobRecord]:
    record = JobRecord(
        job=1,
        workload="image-classification",
        repeat=0,
        seed=1,
        ranks=2,
        goal=Goal(quality="accuracy", better="higher", target=0.5, exponent=1),
        settings={},
        data=DataFacts(
            path=str(packed.path),
            synthetic=False,
            fingerprint=packed.fingerprint,
            train=32,
            validation=8,
        ),
    )
    return RunFolder.create(tmp_path / "runs", "image-classification", tiny()), record


def test_nodes_of_an_attempt_wait_for_each_other_and_each_is_told_of_its_copy(
    job: tuple[RunFolder, JobRecord], tmp_path: Path
) -> None:
    folder, record = job
    attempt = tmp_path / "attempt"
    attempt.mkdir()

    def node(number: int) -> dict[str, str]:
        time.sleep(0.5 * number)
        local = str(tmp_path / f"node-{number}")
        return dict(stage_attempt(folder, record, local, attempt, number, 2))

    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(node, number) for number in (0, 1))
        time.sleep(0.3)
        assert not first.done()
        environments = [first.result(60), second.result(60)]
    assert [staged.where for staged in staged_nodes(attempt)] == ["local", "local"]
    for number, variables in enumerate(environments):
        read = read_staged(record, variables)
        assert Path(read.data.path).parent == tmp_path / f"node-{number}"
        assert read.model_copy(update={"data": record.data}) == record


def test_without_a_local_path_nothing_is_staged(
    job: tuple[RunFolder, JobRecord], tmp_path: Path
) -> None:
    folder, record = job
    assert stage_attempt(folder, record, None, tmp_path, 0, 1) == {}
    assert staged_nodes(tmp_path) == []
    assert read_staged(record, {}) is record


class Trained(NamedTuple):
    """Jobs that agents of this machine finished."""

    folder: RunFolder
    jobs: tuple[int, ...]
    opened: set[Path]
    """The folders of the shards that the ranks read."""

    def staged(self) -> list[Staged]:
        """Return what the log of each job says about staging."""
        events = [self.folder.history().events("staged", job=job) for job in self.jobs]
        return [event.payload(Staged) for (event,) in events]

    def weights(self) -> list[str]:
        events = [self.folder.history().events("finished", job=job) for job in self.jobs]
        return [event.data["weights_sha256"] for (event,) in events]


def trained(planned: RunFolder, root: Path, local: Path, *jobs: int) -> Trained:
    folder = RunFolder.open(shutil.copytree(planned.path, root / planned.path.name))
    records = [JobRecord.read(folder.job_file(job)) for job in (1, 2)]  # one core each
    launcher = LocalLauncher(folder, records)
    opened: set[Path] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VFLOPS_LOCAL_PATH", str(local))
        assert launcher.start(dict.fromkeys(jobs, 1)) == list(jobs)
        while launcher.active_jobs():
            opened |= set(_shard_folders(os.getpid()))
            time.sleep(0.05)
    logs = "".join(path.read_text() for path in folder.path.glob("jobs/**/*.log"))
    assert all(folder.history().ended(job) for job in jobs), logs
    return Trained(folder, jobs, opened)


def _shard_folders(pid: int) -> Iterator[Path]:
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended, or is a zombie
            if "vflops.train.rank" in child.cmdline():
                files = [Path(mapping.path) for mapping in child.memory_maps()]
                yield from (path.parent for path in files if path.suffix == ".bin")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run of two models that has not been started."""
    small = (
        *("micro.benchmarks=[]", "synthetic.train=256", "synthetic.validation=60"),
        *("train.epochs=2", "train.batch=32", "bagging.models=2"),
    )
    settings = load(profile("tiny", ["image-classification"]), None, small)
    folder = RunFolder.create(tmp_path_factory.mktemp("planned"), "images", settings)
    with folder.start_attempt(0) as events:
        training.plan(folder, events, None, lambda what, done, whole: None)
    return folder


@pytest.fixture(scope="module")
def from_copy(planned: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    root = tmp_path_factory.mktemp("staged")
    return trained(planned, root, root / "local", 1, 2)


def test_jobs_train_from_the_copy_that_one_of_them_made(from_copy: Trained) -> None:
    facts = JobRecord.read(from_copy.folder.job_file(1)).data
    actual = from_copy.staged()
    assert [staged.where for staged in actual] == ["local", "local"]
    files = PackedImages.open(Path(facts.path)).index.files()
    assert sorted(staged.bytes for staged in actual) == [
        0,
        sum(file.bytes for file in files),
    ]
    assert from_copy.opened == {Path(actual[0].folder)}
    assert Path(actual[0].folder) != Path(facts.path)  # the record names the original data


def test_weights_are_those_of_a_job_that_had_no_room_to_stage(
    planned: RunFolder, from_copy: Trained, tmp_path: Path, small_disk: Path
) -> None:
    from_source = trained(planned, tmp_path, small_disk, 1)
    assert from_source.weights() == from_copy.weights()[:1]
    assert from_source.opened == {Path(JobRecord.read(planned.job_file(1)).data.path)}
    (actual,) = from_source.staged()
    assert actual.where == "shared"
    assert "are needed" in str(actual.reason)
