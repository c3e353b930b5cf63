"""The quality that image classification reaches in each communication precision, and its bytes.

    python benchmarks/communication_quality.py [--profile laptop] [--ranks 2] [--seeds 1 2 3]

Trains once a precision and seed, and prints a row a precision: the best quality, how far the seeds
spread (their standard deviation), the loss at the end, and what all ranks sent for a step: the mean
of all steps, PowerSGD's first ones in full among them.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from vflops.metrics.traffic import bytes_sent
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import Evaluated, Exchanged, JobStarted, Progressed

PRECISIONS = ("fp32", "fp16", "bf16", "int8", "powersgd")


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--set", action="append", default=[], help="as of vflops run")
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    given = parser.parse_args()
    print("precision   quality  ± seeds     loss  sent a step  of fp32")
    for precision in given.precisions:
        runs = [_trained(precision, seed, given) for seed in given.seeds]
        qualities, losses, sent, plain = zip(*runs, strict=True)
        spread = statistics.stdev(qualities) if len(qualities) > 1 else float("nan")
        print(
            f"{precision:10} {statistics.mean(qualities):8.4f} {spread:8.4f} "
            f"{statistics.mean(losses):8.4f} {sent[0]:12,.0f} {sent[0] / plain[0]:8.3f}",
            flush=True,
        )


def _trained(
    precision: str, seed: int, given: argparse.Namespace
) -> tuple[float, float, float, float]:
    """Best quality, last loss, bytes of a step, and what they would be in fp32."""
    settings = [
        "micro.benchmarks=[]",
        f"train.communication.precision={precision}",
        *given.set,
    ]
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "vflops", "run", "image-classification"]
        command += ["--profile", given.profile, "--ranks", str(given.ranks), "--seed", str(seed)]
        command += ["--out", directory, "--quiet"]
        for item in settings:
            command += ["--set", item]
        ended = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
        if ended.returncode > 1:  # 1: a rule is not met, as on a busy machine; quality is the same
            raise SystemExit(ended.returncode)
        path = latest(Path(directory))
        assert path is not None
        history = RunFolder.open(path).history()
    qualities = [e.payload(Evaluated).quality for e in history.events("evaluation", job=1)]
    losses = [e.payload(Progressed).loss for e in history.events("progress", job=1)]
    parameters = history.events("job", job=1)[0].payload(JobStarted).parameters or 0
    plain = bytes_sent("all-reduce", "fp32", given.ranks, given.ranks, parameters).all
    exchanges = [e.payload(Exchanged) for e in history.events("exchange", job=1)]
    sent = (
        sum(e.bytes_near + e.bytes_far for e in exchanges) / exchanges[0].steps
        if exchanges
        else plain
    )
    last = next((loss for loss in reversed(losses) if loss is not None), float("nan"))
    return max(qualities), last, sent, plain


if __name__ == "__main__":
    main()
