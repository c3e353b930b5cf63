"""Single-core models of an ensemble against plain trainings that know nothing of each other.

    python benchmarks/scaling.py [WORKLOAD] [--profile laptop] [--models 2] [--rounds 3]
                                 [--set KEY=VALUE] [--out FOLDER]

In turns, so that a busy machine slows both: an ensemble (``vflops run --models M``, a core each),
and M plain ``vflops run`` started together, each tied to a core by ``taskset``. Samples a second
are taken alike, from first step to last; of the plain ones each has its own time and they are
added. That is the most that M processes reach here, so the ratio is what bagging costs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from vflops.machine.system.cpu_share import usable_cores
from vflops.record.folder import RunFolder, latest
from vflops.record.readout.contents import Contents
from vflops.record.readout.trained_job import TrainedJob
from vflops.results.score.ensemble_score import training_window_s


def command(arguments: argparse.Namespace, out: Path, *more: str) -> list[str]:
    changes = ["micro.benchmarks=[]", *arguments.set, *more]
    settings = [part for change in changes for part in ("--set", change)]
    start = [sys.executable, "-m", "vflops", "run", arguments.workload, "--quiet"]
    return [*start, "--profile", arguments.profile, "--out", str(out), *settings]


def trained(out: Path) -> list[TrainedJob]:
    path = latest(out)
    assert path is not None
    return Contents(RunFolder.open(path)).training_jobs


def rate(jobs: list[TrainedJob]) -> float:
    """Samples a second of all of them, from the first step of the first to the last of the last."""
    return sum(job.samples_trained for job in jobs) / training_window_s(jobs)


def ensemble(arguments: argparse.Namespace, out: Path) -> float:
    more = (f"bagging.models={arguments.models}", "launch.cores_per_rank=1")
    subprocess.run(command(arguments, out, *more), check=True, capture_output=True)
    return rate(trained(out))


def plain(arguments: argparse.Namespace, out: Path) -> float:
    cores = usable_cores()[: arguments.models]
    started = [
        subprocess.Popen(
            ["taskset", "-c", str(core), *command(arguments, out / str(k), f"seed={k + 1}")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for k, core in enumerate(cores)
    ]
    for process in started:
        assert process.wait() == 0, f"a plain training failed, see {out}"
    return sum(rate(trained(out / str(k))) for k in range(len(cores)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", nargs="?", default="image-classification")
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--models", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.models > len(usable_cores()):
        sys.exit(f"--models {arguments.models}: this machine has {len(usable_cores())} cores")
    out = arguments.out or Path(tempfile.mkdtemp(prefix="vflops-scaling-"))
    pairs = []
    for number in range(arguments.rounds):
        place = out / str(number)
        together, alone = ensemble(arguments, place / "e"), plain(arguments, place / "p")
        pairs.append((together, alone))
        load = os.getloadavg()[0]
        print(
            f"round {number + 1}: ensemble {together:,.1f} samples/s, plain {alone:,.1f},"
            f" efficiency {together / alone:.3f}, load {load:.1f}",
            flush=True,
        )
    best = max(together for together, _ in pairs) / max(alone for _, alone in pairs)
    median = statistics.median(together / alone for together, alone in pairs)
    print(f"efficiency: {best:.3f} best against best, {median:.3f} median of the rounds")


if __name__ == "__main__":
    main()
