"""What ranks that share a model send each other in a step is what the formulas say."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path

import torch
from torch import Tensor, fx

from tests.support.divided_runs import trained
from vflops.config.training import TrainSettings
from vflops.counting.meta_device import on_meta
from vflops.metrics.traffic import bytes_sent, sharded_sent
from vflops.record.formats.job import JobRecord
from vflops.record.formats.job_events import Exchanged
from vflops.train.parallel.channel_pairs import pairs
from vflops.train.parallel.cut import cut
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.workload import Workload

RANKS, STEPS, BATCH = 2, 2, 32
FP32_BYTES = 4


class Shared:
    """A training of two steps by two ranks, evaluated after each; and its model, on meta."""

    def __init__(self, directory: Path, *assignments: str) -> None:
        short = (f"synthetic.train={BATCH}", f"train.epochs={STEPS}")
        self._folder = trained(directory, *short, *assignments, ranks=RANKS)
        record = JobRecord.read(self._folder.job_file(1))
        spec = find(record.workload)
        settings = spec.settings.model_validate(record.settings)
        self.train: TrainSettings = settings.train
        self.workload: Workload = spec.load_code().create(settings, record.data)
        self.model = on_meta(self.workload.model, record.workload)

    def images(self, samples: int) -> Tensor:
        """Return what enters the model."""
        shape = self.workload.input_specs()[0].shape
        return torch.empty((samples, *shape), device="meta")

    def sent(self, mode: str, algorithm: str) -> float:
        """Return the bytes of a step, all of which went to ranks of the same node."""
        (exchanged,) = (
            e.payload(Exchanged) for e in self._folder.history().events("exchange", job=1)
        )
        assert (exchanged.mode, exchanged.algorithm) == (mode, algorithm)
        assert (exchanged.ranks, exchanged.near, exchanged.bytes_far, exchanged.steps) == (
            RANKS,
            RANKS,
            0,
            STEPS,
        )
        assert (exchanged.backend, exchanged.precision, exchanged.elements) == (
            "gloo",
            "fp32",
            None,
        )
        return exchanged.bytes_near / STEPS


def padded(parameter: Tensor) -> int:
    """Return bytes of all rows, as many on each rank."""
    rows = -(-parameter.shape[0] // RANKS) * RANKS
    return rows * prod(parameter.shape[1:]) * FP32_BYTES


def test_shards_are_gathered_twice_and_scattered_once(tmp_path: Path) -> None:
    run = Shared(tmp_path, "train.parallel.mode=sharded")
    how = "all-gather: ring; reduce-scatter: all-reduce by a ring"
    blocks = rest = 0
    for name, parameter in run.model.named_parameters():
        if name.startswith(("stem.0.", "stages.")):  # what is repeated, with more than vectors
            blocks += padded(parameter)
        else:
            rest += padded(parameter)
    assert blocks and rest
    assert run.sent("sharded", how) == sharded_sent(blocks, rest, RANKS, backend="gloo")


def test_a_pair_of_layers_sums_its_output_and_its_input_s_gradient(tmp_path: Path) -> None:
    run = Shared(tmp_path, "train.parallel.mode=model", "train.parallel.split=tensor")
    summed: list[int] = []
    for pair in pairs(run.model):
        first, last = pair.layers[0], pair.layers[-1]
        first.register_forward_pre_hook(lambda layer, inputs: summed.append(inputs[0].numel()))
        last.register_forward_hook(lambda layer, inputs, output: summed.append(output.numel()))
    run.model(run.images(BATCH))
    assert len(summed) > 2
    formula = bytes_sent("all-reduce", "fp32", RANKS, RANKS, sum(summed)).all
    assert run.sent("model", "all-reduce: ring") == formula


def test_what_crosses_a_cut_comes_back(tmp_path: Path) -> None:
    run = Shared(tmp_path, "train.parallel.mode=pipeline", "train.accumulate=2")
    crossing = 0
    for stage, after in pairwise(cut(run.workload, run.train)):
        made = fx.GraphModule(run.model, stage.graph)(run.images(BATCH))
        assert isinstance(made, tuple) and len(made) == len(after.gradients)
        there = [item.numel() * FP32_BYTES for item in made]
        back = [size for size, learns in zip(there, after.gradients, strict=True) if learns]
        crossing += sum(there) + sum(back)
    assert crossing
    assert run.sent("pipeline", "send: pairs") == crossing
