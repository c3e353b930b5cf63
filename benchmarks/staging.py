"""Staging packed data to a node's own storage, compared with plain copies in the same run.

    python benchmarks/staging.py [--shards N] [--bytes B] [--jobs M] [--rounds R] [--folder DIR]

The published method copies the files for every job. Here M jobs of a node stage one after the
other: the first copies, hashes and syncs, the others only check. Plain copies are neither hashed
nor synced, which is in their favour. All read from the page cache; the fastest round counts.

Then the jobs of eight models, each with its bag, stage what they sample: on 8 nodes, and on 4 with
two jobs each. The published method copies every drawn sample as a file, under a new name, so that
one that was drawn twice is copied twice. Samples have the sizes of ImageNet's images at 256 pixels
and of climate frames. Bytes are those of one node, in the mean; times are those of one node.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np

from vflops.data.bootstrap import bag, counts
from vflops.data.images.image_writer import ImageWriter
from vflops.data.images.packed_images import PackedImages
from vflops.data.packed_index import INDEX, digest, hash_file, shard_name
from vflops.data.staging import stage
from vflops.record.files import atomic
from vflops.units import quantity, seconds

MODELS = 8
IMAGE_SIDE = 256
FRAME_SIDE = 3072
"""An image of this size has as many bytes as a climate frame: 768 x 1152 x 16 values of 2 bytes."""


def fill(folder: Path, shards: int, size: int) -> str:
    """Fill ``folder`` like packed data and return its fingerprint."""
    folder.mkdir()
    stored = []
    for name in ("train.npz", *(shard_name("train", number) for number in range(shards))):
        data = os.urandom(size if name.endswith(".bin") else 1000)
        (folder / name).write_bytes(data)
        sha256 = hash_file(folder / name)
        stored.append({"file": name, "bytes": len(data), "sha256": sha256})
    split = {"table": stored[0], "shards": stored[1:]}
    atomic.write_json(folder / INDEX, {"schema": digest(shards), "splits": {"train": split}})
    return hash_file(folder / INDEX)


def copied(source: Path, target: Path) -> float:
    """Return the seconds of a plain copy of the folder."""
    started_s = time.perf_counter()
    shutil.copytree(source, target)
    took_s = time.perf_counter() - started_s
    shutil.rmtree(target)
    return took_s


def staged(source: Path, fingerprint: str, root: Path, jobs: int) -> list[float]:
    """Return the seconds that each job of a node needs to stage the same data."""
    took = []
    for _ in range(jobs):
        started_s = time.perf_counter()
        outcome = stage(source, fingerprint, str(root / "local"), root / "slots", 8, print)
        took.append(time.perf_counter() - started_s)
        assert outcome.where == "local", outcome.reason
    shutil.rmtree(root / "local")
    return took


def packed(folder: Path, samples: int, side: int) -> PackedImages:
    """Pack random images of the given height and width."""
    rng, count = np.random.default_rng(1), {"train": samples, "val": 1}
    with ImageWriter(folder, origin="noise", short_side=side, classes=("a", "b")) as writer:
        for split, number in count.items():
            for index in range(number):
                writer.add(rng.integers(0, 256, (side, side, 3), np.uint8), index % 2, split=split)
    return PackedImages.open(folder)


def staged_samples(data: PackedImages, root: Path, nodes: int) -> tuple[list[int], float]:
    """Return the bytes that each node copies, and the seconds of the first node."""
    size, copied_bytes, took_s = len(data.split("train")), [], []
    for node in range(nodes):
        started_s, staged_bytes = time.perf_counter(), 0
        for model in range(node, MODELS, nodes):
            needed = counts("poisson", 1, model, size) > 0
            outcome = stage(
                *(data.path, data.fingerprint, str(root / "local"), root / "slots", 8, print),
                needed,
            )
            assert outcome.where == "local", outcome.reason
            staged_bytes += outcome.bytes
        took_s.append(time.perf_counter() - started_s)
        copied_bytes.append(staged_bytes)
        shutil.rmtree(root / "local")
    return copied_bytes, took_s[0]


def copied_files(data: PackedImages, root: Path, nodes: int) -> tuple[list[int], float]:
    """Return the bytes of the published method on each node, and the seconds of the first node."""
    split = data.split("train")
    source, target = root / "files", root / "drawn"
    if not source.is_dir():
        source.mkdir()
        for number in range(len(split)):
            (source / str(number)).write_bytes(split.image(number).tobytes())
    bags = [bag("poisson", 1, model, len(split)) for model in range(MODELS)]
    copied_bytes = [
        sum(int(split.sizes_bytes[bags[model]].sum()) for model in range(node, MODELS, nodes))
        for node in range(nodes)
    ]
    started_s = time.perf_counter()
    for model in range(0, MODELS, nodes):
        (target / str(model)).mkdir(parents=True)
        for place, number in enumerate(bags[model].tolist()):
            shutil.copyfile(source / str(number), target / str(model) / f"{place}-{number}")
    took_s = time.perf_counter() - started_s
    shutil.rmtree(target)
    return copied_bytes, took_s


def compare_samples(what: str, samples: int, side: int, root: Path) -> None:
    """Print the bytes and the seconds of a node for each way to get the data to it."""
    root.mkdir()
    data = packed(root / "source", samples, side)
    whole = sum(file.bytes for file in data.index.files())
    print(f"\n{samples} {what} of {quantity(side * side * 3, 'B')}, {quantity(whole, 'B')} in all")
    for nodes in (MODELS, MODELS // 2):
        methods = {"what they sample": staged_samples, "as files, as published": copied_files}
        for method, measure in methods.items():
            sizes, took_s = measure(data, root, nodes)
            mean = sum(sizes) / nodes
            label = f"{MODELS} models, {nodes} nodes: {method}"
            print(f"{label:44} {quantity(mean, 'B'):>9} {mean / whole:>6.1%} {seconds(took_s):>9}")
    (whole_s,) = staged(data.path, data.fingerprint, root, 1)
    print(f"{'the whole set':44} {quantity(whole, 'B'):>9} {1:>6.1%} {seconds(whole_s):>9}")
    shutil.rmtree(root)


def row(what: str, took_s: float, size: float) -> None:
    print(f"{what:36} {seconds(took_s):>9} {quantity(size / took_s, 'B/s'):>10}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--bytes", type=int, default=1 << 25)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where to copy; by default the temporary folder"
    )
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--frames", type=int, default=64)
    arguments = parser.parse_args()
    copies, first, other = [], [], []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder)
        fingerprint = fill(root / "source", arguments.shards, arguments.bytes)
        for _ in range(arguments.rounds):
            copies.append(copied(root / "source", root / "copy"))
            took = staged(root / "source", fingerprint, root, arguments.jobs)
            first.append(took[0])
            other += took[1:]
    size, jobs = arguments.shards * arguments.bytes, arguments.jobs
    print(f"{quantity(size, 'B')} in {arguments.shards} shards for {jobs} jobs of a node")
    row("a plain copy for one job", min(copies), size)
    row("staged by the first job", min(first), size)
    print(f"{'checked by another job':36} {seconds(min(other)):>9}")
    whole_s, plain_s = min(first) + (jobs - 1) * min(other), jobs * min(copies)
    print(f"{jobs} jobs: {seconds(whole_s)} staged once, {seconds(plain_s)} with one copy each")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        compare_samples("images", arguments.images, IMAGE_SIDE, Path(folder) / "images")
        compare_samples("frames", arguments.frames, FRAME_SIDE, Path(folder) / "frames")


if __name__ == "__main__":
    main()
