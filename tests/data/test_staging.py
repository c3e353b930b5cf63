"""Packed data is staged to the storage of a node once: whole, or the samples that jobs read."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from tests.support.sample_parts import Vflops
from vflops.config.profiles import tiny
from vflops.data import local_copy
from vflops.data.images.image_writer import ImageWriter
from vflops.data.images.packed_images import PackedImages
from vflops.data.local_copy import LocalCopy, Missing
from vflops.data.packed_index import INDEX, hash_file
from vflops.data.present_samples import Mask, PresentSamples
from vflops.data.staging import (
    needed_samples,
    read_staged,
    require_staged,
    stage,
    stage_attempt,
    staged_nodes,
)
from vflops.errors import FolderError
from vflops.launch.local.local_launcher import LocalLauncher
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, Goal, JobRecord
from vflops.record.formats.job_events import Staged
from vflops.run import jobs as training
from vflops.workloads.contract.run_settings import load, profile

SIDE = 100
STAGE = """
import sys
from pathlib import Path
import numpy as np
from vflops.data import local_copy
from vflops.data.staging import stage
{before}
source, fingerprint, local, slots, readers, bits = sys.argv[1:]
say = lambda text: print(text, file=sys.stderr, flush=True)
needed = np.array([bit == "1" for bit in bits]) if bits else None
outcome = stage(Path(source), fingerprint, local, Path(slots), int(readers), say, needed)
print(outcome.model_dump_json())
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

KILLED_BEFORE_SYNC = """
import os, signal
from vflops.data.shard_samples import NeededSamples
copy = NeededSamples.copy
def copy_and_die(self, missing, descriptor, stop):
    copy(self, missing, descriptor, stop)
    os.kill(os.getpid(), signal.SIGKILL)
NeededSamples.copy = copy_and_die
"""
KILLED_IN_THE_THIRD_SHARD = """
import os, signal
from vflops.data.shard_samples import NeededSamples
local_copy._FILES_AT_ONCE = 1
copy = NeededSamples.copy
def copy_or_die(self, missing, descriptor, stop):
    if missing.first == 16:
        os.kill(os.getpid(), signal.SIGKILL)
    copy(self, missing, descriptor, stop)
NeededSamples.copy = copy_or_die
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

    def stage(self, readers: int = 8, needed: Mask | None = None) -> Staged:
        source, mark = self.packed.path, self.packed.fingerprint
        return stage(source, mark, str(self.local), self.slots, readers, self.said.append, needed)

    def process(
        self, before: str = "", readers: int = 8, needed: Mask | None = None
    ) -> subprocess.Popen[str]:
        bits = "" if needed is None else "".join("01"[bit] for bit in needed.tolist())
        where = (self.packed.path, self.packed.fingerprint, self.local, self.slots)
        arguments = (*where, readers, bits)
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

    def complete(self: LocalCopy, missing: Missing) -> None:
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


SAMPLE_BYTES = SIDE * SIDE * 3
BAGS = [np.random.default_rng(model).random(32) < 0.63 for model in (1, 2)]
"""The training samples that two jobs read."""


def read_one(folder: Path, number: int) -> NDArray[np.uint8]:
    return PackedImages.open(folder).split("train").image(number)


def whole_files(node: Node) -> int:
    """Bytes that are copied whatever a job samples: all but the shards of the training split."""
    shards = node.packed.index.splits["train"].shards
    return node.bytes - sum(shard.bytes for shard in shards)


def test_only_the_samples_of_the_jobs_are_copied_each_once(node: Node) -> None:
    first, second = BAGS
    staged = [node.stage(needed=needed) for needed in (first, second, first)]
    union = first | second
    assert 0 < first.sum() < union.sum() < 32
    assert [outcome.bytes for outcome in staged] == [
        whole_files(node) + first.sum() * SAMPLE_BYTES,
        (second & ~first).sum() * SAMPLE_BYTES,
        0,
    ]
    assert [outcome.samples for outcome in staged] == [first.sum(), union.sum(), union.sum()]
    shards = [node.copy / shard.file for shard in node.packed.index.splits["train"].shards]
    assert sum(path.stat().st_blocks * 512 for path in shards) < 32 * SAMPLE_BYTES  # sparse
    copy, source = (
        PackedImages.open(path).split("train") for path in (node.copy, node.packed.path)
    )
    for number in np.flatnonzero(union).tolist():
        assert (copy.image(number) == source.image(number)).all()


def test_a_sample_that_was_not_copied_cannot_be_read(node: Node) -> None:
    node.stage(needed=BAGS[0])
    absent = int(np.flatnonzero(~BAGS[0])[0])
    split = PackedImages.open(node.copy).split("train")  # not even compared with digests
    with pytest.raises(FolderError) as caught:
        split.image(absent)
    assert caught.value.message.startswith(f"sample {absent} of train in {node.copy} is not in")
    with ThreadPoolExecutor(2) as pool, pytest.raises(FolderError, match="is not in this copy"):
        split.read_with(pool, np.arange(32), np.empty(32 * SAMPLE_BYTES, np.uint8))
    PackedImages.open(node.copy).split("val").image(0)


def test_a_job_that_needs_all_samples_completes_the_copy(node: Node) -> None:
    node.stage(needed=BAGS[0])
    shards = node.packed.index.splits["train"].shards
    actual = node.stage()
    assert (actual.bytes, actual.samples) == (sum(shard.bytes for shard in shards), None)
    assert PackedImages.open(node.copy).verify() == node.bytes
    assert not list(node.copy.glob("*.present"))
    assert node.stage(needed=BAGS[1]).reason == "it was there already"


def test_nothing_is_copied_if_the_whole_copy_is_there(node: Node) -> None:
    node.stage()
    actual = node.stage(needed=BAGS[0])
    assert (actual.bytes, actual.samples, actual.reason) == (0, None, "it was there already")
    spoil(node.copy / "train-00001.bin")  # other jobs may need all of it
    damaged = node.packed.index.splits["train"].shards[1]
    assert (node.stage(needed=BAGS[0]).bytes, node.stage().bytes) == (damaged.bytes, 0)


def test_samples_without_digests_are_copied_whole(node: Node, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(node.packed.path, old)
    index = PackedImages.open(old).index
    index.model_copy(update={"contents": None}).write(old / INDEX)
    plain = Node(PackedImages.open(old), node.local, node.slots)
    actual = plain.stage(needed=BAGS[0])
    assert (actual.bytes, actual.samples) == (plain.bytes, None)


def test_a_partial_copy_that_was_killed_resumes(node: Node) -> None:
    """The first file is the table, the next two are shards; each shard is recorded when done."""
    process = node.process(before=KILLED_IN_THE_THIRD_SHARD, needed=BAGS[0])
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (node.copy / INDEX).exists()
    actual = node.stage(needed=BAGS[0])
    recorded = BAGS[0][:16].sum() * SAMPLE_BYTES
    tables = sum(path.stat().st_size for path in node.packed.path.glob("*.npz"))
    assert actual.bytes <= whole_files(node) + BAGS[0].sum() * SAMPLE_BYTES - recorded
    assert actual.bytes >= BAGS[0][16:].sum() * SAMPLE_BYTES > tables
    assert actual.samples == BAGS[0].sum()
    PackedImages.open(node.copy).verify_contents()


def test_a_copy_that_was_killed_while_samples_were_added_keeps_the_others(node: Node) -> None:
    node.stage(needed=BAGS[0])
    process = node.process(before=KILLED_BEFORE_SYNC, needed=BAGS[1])
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert (node.copy / INDEX).exists()  # the first job may still read its samples
    added = np.flatnonzero(BAGS[1] & ~BAGS[0])
    with pytest.raises(FolderError, match="is not in this copy"):
        read_one(node.copy, int(added[0]))  # whether written or not, it is not recorded
    assert node.stage(needed=BAGS[0]).bytes == 0
    assert node.stage(needed=BAGS[1]).bytes == len(added) * SAMPLE_BYTES
    PackedImages.open(node.copy).verify_contents()


def test_only_damaged_samples_are_copied_again(node: Node) -> None:
    node.stage(needed=BAGS[0])
    number = int(np.flatnonzero(BAGS[0])[0])
    assert number == 0 or not BAGS[0][0]
    shard = node.copy / "train-00000.bin"
    with shard.open("r+b") as file:
        file.seek(number * SAMPLE_BYTES + 5)
        file.write(b"damage")
    actual = node.stage(needed=BAGS[0])
    assert (actual.bytes, actual.samples) == (SAMPLE_BYTES, BAGS[0].sum())
    (node.copy / "train-00001.present").unlink()  # the shard then claims to be whole
    again = node.stage(needed=BAGS[0])
    assert again.bytes == node.packed.index.splits["train"].shards[1].bytes
    PackedImages.open(node.copy).verify_contents()


def test_a_damaged_sample_is_refused_only_by_jobs_that_read_it(node: Node, tmp_path: Path) -> None:
    shutil.copytree(node.packed.path, tmp_path / "damaged")
    number = int(np.flatnonzero(BAGS[1] & ~BAGS[0])[0])
    path = tmp_path / "damaged" / f"train-{number // 8:05d}.bin"
    with path.open("r+b") as file:
        file.seek(number % 8 * SAMPLE_BYTES)
        file.write(b"damage")
    bad = Node(PackedImages.open(tmp_path / "damaged"), node.local, node.slots)
    assert bad.stage(needed=BAGS[0]).where == "local"
    with pytest.raises(FolderError, match=rf"sample {number} of train in .*damaged differs"):
        bad.stage(needed=BAGS[1])
    assert bad.stage(needed=BAGS[0]).where == "local"
    PackedImages.open(bad.copy).verify_contents()


def test_a_disk_that_is_too_small_for_more_samples_keeps_what_it_has(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.stage(needed=BAGS[0])
    monkeypatch.setattr(local_copy, "free_bytes", lambda folder: 0)
    actual = node.stage(needed=BAGS[1])
    assert actual.where == "shared"
    assert actual.reason is not None and "0 B free" in actual.reason
    assert node.stage(needed=BAGS[0]).bytes == 0  # another job may be reading it


def test_a_disk_without_room_for_the_list_of_intact_samples_is_not_an_error(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shard was touched, and which of its samples are intact cannot be recorded."""
    node.stage(needed=BAGS[0])
    os.utime(node.copy / "train-00000.bin")

    def full(self: PresentSamples, path: Path) -> None:
        raise atomic.cannot_write(path, OSError(errno.ENOSPC, "No space left on device"))

    with monkeypatch.context() as patch:
        patch.setattr(PresentSamples, "write", full)
        actual = node.stage(needed=BAGS[0])
    assert actual.where == "shared"
    assert actual.reason is not None and "No space left on device" in actual.reason
    again = node.stage(needed=BAGS[0])
    assert (again.where, again.bytes) == ("local", 0)


def test_a_partial_copy_can_be_verified_and_is_no_data_of_a_new_run(
    node: Node, vflops: Vflops
) -> None:
    node.stage(needed=BAGS[0])
    verified = vflops("data", "verify", node.copy)
    assert verified.returncode == 0, verified.stderr
    assert "a node's copy, which has only the samples that its jobs read" in verified.stdout
    options = ("--profile", "tiny", "--set", "target=0.8")
    refused = vflops("run", "image-classification", "--data", node.copy, *options)
    assert refused.returncode == 2
    assert "is a node's copy for other jobs, which lacks samples" in refused.stderr


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
        *("train.epochs=2", "train.batch=32", "bagging.models=2", "bagging.out_of_bag=10"),
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


def test_jobs_train_from_the_copy_of_what_they_sample(from_copy: Trained) -> None:
    """Also the weights are those of training from the shared data, as the next test shows."""
    records = [JobRecord.read(from_copy.folder.job_file(job)) for job in (1, 2)]
    facts = records[0].data
    actual = from_copy.staged()
    assert [staged.where for staged in actual] == ["local", "local"]
    packed = PackedImages.open(Path(facts.path))
    bags = [needed_samples(record) for record in records]
    assert bags[0] is not None and bags[1] is not None
    assert 0.5 < bags[0].mean() < 0.8
    union = bags[0] | bags[1]
    split = packed.split("train")
    kept = [file.bytes for file in packed.index.files() if file not in split.entry.shards]
    copied = sum(staged.bytes for staged in actual)
    assert copied == sum(kept) + split.extents().stride[union].sum()
    assert max(staged.samples or 0 for staged in actual) == union.sum() < 256
    assert from_copy.opened == {Path(actual[0].folder)}
    assert Path(actual[0].folder) != Path(facts.path)  # the record names the original data


def test_a_rank_refuses_a_copy_without_its_samples(planned: RunFolder, tmp_path: Path) -> None:
    first, second = (JobRecord.read(planned.job_file(job)) for job in (1, 2))
    data = first.data
    (tmp_path / "local").mkdir()
    needed = needed_samples(first)
    staged = stage(
        *(Path(data.path), data.fingerprint, str(tmp_path / "local"), tmp_path / "slots", 8, print),
        needed,
    )
    require_staged(first, {"VFLOPS_STAGED": staged.folder})
    whole = second.model_copy(update={"bag": None})
    for record in (second, whole):
        with pytest.raises(FolderError, match=r"of those needed are absent"):
            require_staged(record, {"VFLOPS_STAGED": staged.folder})


def test_weights_are_those_of_a_job_that_had_no_room_to_stage(
    planned: RunFolder, from_copy: Trained, tmp_path: Path, small_disk: Path
) -> None:
    from_source = trained(planned, tmp_path, small_disk, 1)
    assert from_source.weights() == from_copy.weights()[:1]
    assert from_source.opened == {Path(JobRecord.read(planned.job_file(1)).data.path)}
    (actual,) = from_source.staged()
    assert actual.where == "shared"
    assert "are needed" in str(actual.reason)
