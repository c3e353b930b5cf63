"""What ranks that share a model send each other in a step is what the formulas say."""

from __future__ import annotations

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
from vflops.record.readout.contents import Contents
from vflops.results.check.expected_traffic import Team, shared_bytes
from vflops.results.check.parallelism_rules import parallelism_faults
from vflops.train.parallel.channel_pairs import pairs
from vflops.train.parallel.cut import cut
from vflops.workloads.contract.registry import workload as find
from vflops.workloads.contract.workload import Workload

RANKS, STEPS, BATCH = 2, 2, 32
FP32_BYTES = 4


class Shared:
    """A training of two steps by two ranks, evaluated after each; and its model, on meta."""

    def __init__(
        self, directory: Path, *assignments: str, workload: str = "image-classification"
    ) -> None:
        short = (f"synthetic.train={BATCH}", f"train.epochs={STEPS}")
        self._folder = trained(directory, *short, *assignments, ranks=RANKS, workload=workload)
        record = JobRecord.read(self._folder.job_file(1))
        spec = find(record.workload)
        settings = spec.settings.model_validate(record.settings)
        self.train: TrainSettings = settings.train
        self.workload: Workload = spec.load_code().create(settings, record.data)
        self.model = on_meta(self.workload.model, record.workload)

    def inputs(self, samples: int) -> list[Tensor]:
        """Return what enters the model."""
        specs = self.workload.input_specs()[: self.workload.model_inputs]
        return [
            torch.empty((samples, *spec.shape), dtype=getattr(torch, spec.dtype), device="meta")
            for spec in specs
        ]

    def faults(self) -> list[str]:
        """Return what the rules of ``check`` find in the log."""
        contents = Contents(self._folder)
        (job,) = contents.training_jobs
        return [text for _, text in parallelism_faults(contents, job)]

    def forged_faults(self, **more: int) -> list[str]:
        """Return what the rules find if the log said that more was sent."""
        contents = Contents(self._folder)
        (graph,) = contents.graphs
        (event,) = self._folder.history().events("exchange", job=1)
        sent = event.payload(Exchanged)
        changed = {name: getattr(sent, name) + value for name, value in more.items()}
        team = Team(self.train, "cpu", STEPS, RANKS, graph.parameter_count, graph)
        facts = shared_bytes(team, sent.model_copy(update=changed))
        return [fact.fault for fact in facts if fact.fault]

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


LANGUAGE = (
    "synthetic.train=16385",
    "train.epochs=1",
    "context=512",
    "network.layers=2",
    "network.width=16",
    "network.heads=2",
    "network.style=llama",
    "network.qk_norm=true",
)
"""63 windows, so that an epoch has two steps; embedding and output layer are tied."""


def split_blocks(run: Shared) -> tuple[int, int]:
    """Return the bytes of repeated blocks with more than vectors, and of all others."""
    blocks = rest = 0
    for name, parameter in run.model.named_parameters():
        if name.startswith(("stem.0.", "stages.", "layers.")):
            blocks += padded(parameter)
        else:
            rest += padded(parameter)
    assert blocks and rest
    return blocks, rest


SHARDED = "train.parallel.mode=sharded"
SHARDED_CALLS = "all-gather: ring; reduce-scatter: all-reduce by a ring"


def test_shards_are_gathered_twice_and_scattered_once(tmp_path: Path) -> None:
    run = Shared(tmp_path, SHARDED)
    expected = sharded_sent(*split_blocks(run), RANKS, backend="gloo")
    assert run.sent("sharded", SHARDED_CALLS) == expected
    assert not run.faults()


def test_shards_of_a_tied_weight_are_sent_once_and_muon_gathers_matrices(tmp_path: Path) -> None:
    muon = "train.optimizer=muon"
    run = Shared(tmp_path, *LANGUAGE, SHARDED, muon, workload="language-model")
    matrices = [p for name, p in run.model.named_parameters() if "layers" in name and p.ndim > 1]
    gathered = (RANKS - 1) * sum(padded(matrix) for matrix in matrices)
    expected = sharded_sent(*split_blocks(run), RANKS, backend="gloo") + gathered
    assert run.sent("sharded", SHARDED_CALLS) == expected
    assert not run.faults() and not run.forged_faults()
    assert run.forged_faults(bytes_near=STEPS * expected)


TENSOR = ("train.parallel.mode=model", "train.parallel.split=tensor")


def summed_elements(run: Shared) -> int:
    """Return the sizes of the outputs of all pairs, and of the inputs whose gradients are summed.

    Layers that read the same input share that sum.
    """
    summed: list[int] = []
    for pair in pairs(run.model):
        first, last = pair.layers[0], pair.layers[-1]
        first.register_forward_pre_hook(lambda layer, inputs: summed.append(inputs[0].numel()))
        last.register_forward_hook(lambda layer, inputs, output: summed.append(output.numel()))
    run.model(*run.inputs(BATCH))
    assert len(summed) > 2
    return sum(summed)


def test_a_pair_of_layers_sums_its_output_and_its_input_s_gradient(tmp_path: Path) -> None:
    run = Shared(tmp_path, *TENSOR)
    formula = bytes_sent("all-reduce", "fp32", RANKS, RANKS, summed_elements(run)).all
    assert run.sent("model", "all-reduce: ring") == formula
    assert not run.faults()


def test_ranks_that_divide_heads_and_words_sum_norms_embedding_and_logits(tmp_path: Path) -> None:
    run = Shared(tmp_path, *LANGUAGE, *TENSOR, workload="language-model")
    tokens, width = BATCH * 512, 16
    vocabulary = 2 * tokens * width + 3 * tokens  # states, the gradient of states, and logits
    norms = sum(p.numel() for name, p in run.model.named_parameters() if "y_norm" in name)
    assert norms == 2 * 2 * 8  # of queries and keys, in two layers, for heads of 8 columns
    formula = bytes_sent(
        "all-reduce", "fp32", RANKS, RANKS, summed_elements(run) + norms + vocabulary
    ).all
    assert run.sent("model", "all-reduce: ring") == formula
    assert not run.faults()


PIPELINE = ("train.parallel.mode=pipeline", "train.accumulate=2")


def crossing_bytes(run: Shared, samples: int = BATCH) -> int:
    """Return the bytes that cross the cut, and those of the gradients that come back."""
    stage, after = cut(run.workload, run.train)
    made = fx.GraphModule(run.model, stage.graph)(run.inputs(samples)[0])
    assert isinstance(made, tuple) and len(made) == len(after.gradients)
    there = [int(item.numel()) * FP32_BYTES for item in made]
    back = [size for size, learns in zip(there, after.gradients, strict=True) if learns]
    assert there and back
    return sum(there) + sum(back)


def test_what_crosses_a_cut_comes_back(tmp_path: Path) -> None:
    run = Shared(tmp_path, *PIPELINE)
    assert run.sent("pipeline", "send: pairs") == crossing_bytes(run)
    assert not run.faults()


def test_the_stages_with_a_tied_weight_sum_its_gradient_once_a_step(tmp_path: Path) -> None:
    run = Shared(tmp_path, *LANGUAGE, *PIPELINE, workload="language-model")
    parts = 2 * crossing_bytes(run, BATCH // 2)  # each part sends the rotations of positions again
    embedding = run.model.get_parameter("embedding.weight")
    tied = bytes_sent("all-reduce", "fp32", RANKS, RANKS, embedding.numel()).all
    assert run.sent("pipeline", "all-reduce: ring; send: pairs") == parts + tied
    assert not run.faults() and not run.forged_faults()
    assert "multiple of 4" in run.forged_faults(bytes_near=2)[0]  # steps times parts of a batch
