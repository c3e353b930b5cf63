"""Whether every seed reaches the target of its profile, on several kinds of CPU.

    python -m benchmarks.seeds WORKLOAD PROFILE [--seeds 20] [--cpus native,avx2,sse41]
                               [--threads 1,2,4] [--set KEY=VALUE] [--file FILE]
    python -m benchmarks.seeds --page

Each run is the command as a user types it, without ceilings. Its quality is added to FILE
(docs/measurements/seeds.json), one row per run; runs that are there already are not repeated.
``--page`` writes docs/measurements/seeds.md from the file. The kinds of CPU are this one with all
of its instructions, and with those of older ones only.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import vflops
from vflops.metrics import mean
from vflops.record.files import atomic
from vflops.workloads.contract.registry import workload as find

FILE = Path("docs/measurements/seeds.json")
PAGE = FILE.with_suffix(".md")
CPUS = {
    "native": {},
    "avx2": {"DNNL_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"},
    "sse41": {"DNNL_MAX_CPU_ISA": "SSE41", "ATEN_CPU_CAPABILITY": "default"},
}
"""The variables that limit the instructions of torch's libraries."""
_HEAD = """# Seeds

Written by `python -m benchmarks.seeds --page` from [seeds.json](seeds.json), which has the quality
of every run. The target of a profile should be reached by every seed on every kind of CPU: the
processor with all of its instructions (`native`), and with those of older ones only, which add in
another order. `native` is {machine}.

| workload, profile | CPU | threads | seeds | lowest | mean | highest | target | reached |
|---|---|---|---|---|---|---|---|---|
"""


class Row(NamedTuple):
    """One run."""

    workload: str
    profile: str
    cpu: str
    threads: int
    seed: int
    quality: float

    @property
    def key(self) -> tuple[str | int, ...]:
        """What identifies the run."""
        return self[:5]


def rows(path: Path = FILE) -> list[Row]:
    """Return the runs that were measured."""
    stored = json.loads(path.read_text())["rows"] if path.is_file() else []
    return sorted(Row(*row) for row in stored)


def add(path: Path, row: Row) -> None:
    """Add a run to the file, which other processes may be changing."""
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [other for other in rows(path) if other.key != row.key]
        lines = ",\n".join(json.dumps(list(item)) for item in sorted([*kept, row]))
        machine = next(iter(json.loads(path.read_text())["machine"] for _ in kept[:1]), _machine())
        text = f'{{"machine": {json.dumps(machine)},\n"rows": [\n{lines}\n]}}\n'
        atomic.write_bytes(path, text.encode())


def measure(row: Row, settings: Sequence[str]) -> Row:
    """Train once, and return the row with the quality that was reached."""
    variables = {**os.environ, **CPUS[row.cpu], "OMP_NUM_THREADS": str(row.threads)}
    options = [part for item in settings for part in ("--set", item)]
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "vflops", "run", row.workload, "--profile", row.profile]
        command += ["--seed", str(row.seed), "--out", out, "--quiet", *options]
        command += ["--set", "micro.benchmarks=[]"]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{row}: {done.stderr}")
        (run,) = Path(out).iterdir()
        (score,) = vflops.Run(run).score()
    return row._replace(quality=round(float(score["quality"]), 6))


def target(workload: str, name: str) -> float:
    """Return the target of a profile."""
    spec = find(workload)
    return float(spec.load_code().target(spec.profile(name)))


def page(path: Path = FILE) -> str:
    """Return the page that shows the runs of the file."""
    lines = [_HEAD.format(machine=json.loads(path.read_text())["machine"])]
    for (workload, name, cpu, threads), runs in groupby(rows(path), lambda row: row[:4]):
        qualities, goal = [row.quality for row in runs], target(workload, name)
        reached = sum(quality >= goal for quality in qualities)
        spread = " | ".join(f"{x:.4g}" for x in (min(qualities), mean(qualities), max(qualities)))
        start = f"| {workload}, `{name}` | {cpu} | {threads} | {len(qualities)}"
        lines.append(f"{start} | {spread} | {goal:g} | {reached} of {len(qualities)} |\n")
    return "".join(lines)


def _machine() -> str:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line for line in lines if "model name" in line]
    name = models[0].partition(":")[2].strip() if models else "an unknown processor"
    instructions = torch.backends.cpu.get_cpu_capability()
    return f"an {name} with {instructions}, torch {torch.__version__}"


def _planned(arguments: argparse.Namespace) -> Iterator[Row]:
    threads = map(int, arguments.threads.split(","))
    for seed, cpu, number in product(
        range(1, arguments.seeds + 1), arguments.cpus.split(","), list(threads)
    ):
        yield Row(arguments.workload, arguments.profile, cpu, number, seed, float("nan"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="?")
    parser.add_argument("profile", nargs="?")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cpus", default=",".join(CPUS))
    parser.add_argument("--threads", default="1,2,4")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--page", action="store_true")
    arguments = parser.parse_args()
    if arguments.page:
        atomic.write_bytes(PAGE, page(arguments.file).encode())
        return
    known = {row.key for row in rows(arguments.file)}
    for row in _planned(arguments):
        if row.key not in known:
            measured = measure(row, arguments.set)
            add(arguments.file, measured)
            print(*measured, flush=True)


if __name__ == "__main__":
    main()
