"""Staging packed data to a node's own storage, compared with plain copies in the same run.

    python benchmarks/staging.py [--shards N] [--bytes B] [--jobs M] [--rounds R] [--folder DIR]

The published method copies the files for every job. Here M jobs of a node stage one after the
other: the first copies, hashes and syncs, the others only check. Plain copies are neither hashed
nor synced, which is in their favour. All read from the page cache; the fastest round counts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

from vflops.data.packed_index import INDEX, digest, hash_file, shard_name
from vflops.data.staging import stage
from vflops.record.files import atomic
from vflops.units import quantity, seconds


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


if __name__ == "__main__":
    main()
