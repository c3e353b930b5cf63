"""What commitments and checkpoints cost the training.

    python -m benchmarks.commitment_cost [WORKLOAD] [--profile laptop] [--rounds 5]
                                         [--seconds 4] [--set KEY=VALUE]

Steps on one batch that stays on the device, in turns: without commitments, with a commitment in
the middle of each turn, and with a checkpoint there. A turn ends when the state is hashed (or on
disk) and the device is idle. The difference of the times for the same number of steps is the cost;
the loop commits so rarely that its estimate of this cost stays below 0.4 % of the time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.train_speed import engine
from vflops.train.committing import Committer
from vflops.train.engine import Engine
from vflops.train.loop_commitments import ACCELERATOR_DELAY, COMMIT_S, COMMIT_SHARE

_WAYS = ("plain", "commitment", "checkpoint")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("workload", nargs="?", default="image-classification")
    parser.add_argument("--profile", default="laptop")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = engine(arguments, Path(folder))
        with made.precision.settings():
            measure(made, arguments.rounds, arguments.seconds)


def measure(made: Engine, rounds: int, seconds: float) -> None:
    batch = made.loop().one_batch()
    committer = Committer(made.state.checkpoints)
    steps = _steps_in(made, batch, seconds)
    times: dict[str, list[float]] = {way: [] for way in _WAYS}
    hashed_s = {way: [0.0] for way in _WAYS}
    for number in range(rounds + 1):
        for way in _WAYS:
            began_s = time.perf_counter()
            for step in range(steps):
                made.state.take_step(batch, 1e-4)
                if step == steps // 2 and way != "plain":
                    contents = made.state.contents()
                    assert contents is not None
                    committer.begin(made.state.step, contents, checkpoint=way == "checkpoint")
            state = committer.take(wait=True)
            _synchronise(made)
            if number:  # the first round allocates memory
                times[way].append(time.perf_counter() - began_s)
                hashed_s[way].append(state.took_s if state else 0.0)
    plain_s = statistics.median(times["plain"])
    spread = (max(times["plain"]) - min(times["plain"])) / plain_s
    weights = made.backend.weights() or {}
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
    print(f"{made.context.record.workload} on {made.device}: {size / 1e6:.1f} MB of weights")
    print(f"{steps} steps in {plain_s:.3f} s without commitments, spread {spread:.2%}")
    for way in _WAYS[1:]:
        cost_s = statistics.median(
            with_s - without_s for with_s, without_s in zip(times[way], times["plain"], strict=True)
        )
        took_s = statistics.median(hashed_s[way][1:])
        delay = 1.0 if made.device.type == "cpu" else ACCELERATOR_DELAY
        interval_s = max(COMMIT_S, delay * took_s / COMMIT_SHARE)
        print(
            f"{way}: {took_s * 1e3:.1f} ms in the other thread, costs training "
            f"{cost_s * 1e3:.1f} ms; once in {interval_s:.1f} s: {cost_s / interval_s:.3%}"
        )
    committer.close()


def _steps_in(made: Engine, batch: list[tuple[torch.Tensor, ...]], seconds: float) -> int:
    for _ in range(made.backend.warm_steps + 3):
        made.state.take_step(batch, 1e-4)
    _synchronise(made)
    began_s, steps = time.perf_counter(), 0
    while time.perf_counter() - began_s < seconds / 4:
        made.state.take_step(batch, 1e-4)
        _synchronise(made)
        steps += 1
    return max(4 * steps, 4)


def _synchronise(made: Engine) -> None:
    if made.device.type != "cpu":
        torch.accelerator.synchronize()


if __name__ == "__main__":
    main()
