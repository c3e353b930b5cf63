"""Peak of host memory of CPU ranks that share a language model, before the first step.

    python -m benchmarks.rank_memory [--preset llama-1b] [--layers N] [--ranks 2] [--restore]
        [--mode sharded|tensor|layers]

Each rank is a process that builds its part of the model and, with ``--restore``, loads a checkpoint
of zeros. The table compares the growth of its resident memory, at the peak and at the end, with its
part: weights, gradients and the optimizer's state (AdamW). Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vflops.config.training import TrainSettings
from vflops.counting.meta_device import on_meta
from vflops.record.formats.job import DataFacts
from vflops.record.formats.job_events import Checkpointed
from vflops.record.formats.recorded_names import checkpoint_file
from vflops.train.backends.torch_backend import TorchBackend
from vflops.train.checkpoint import Checkpoints
from vflops.train.parallel.factory import parallel_plan
from vflops.train.parallel.optimizer_state import local
from vflops.train.precision import Precision
from vflops.train.state import TrainState
from vflops.train.state_file import pack
from vflops.workloads.language_model.settings import LanguageSettings
from vflops.workloads.language_model.workload import LanguageModel

_GB = 1e9
_STATES = 2
"""Numbers that AdamW keeps per parameter."""
_PARALLEL: dict[str, dict[str, Any]] = {
    "sharded": {"mode": "sharded"},
    "tensor": {"mode": "model", "split": "tensor"},
    "layers": {"mode": "model"},
}
_VOCABULARY = {"llama-1b": 128_256, "llama-8b": 128_256, "mixtral-8x7b": 32_000}


def language_model(arguments: argparse.Namespace) -> tuple[LanguageModel, TrainSettings]:
    """Return a workload without data, and its training settings."""
    network: dict[str, Any] = {"preset": arguments.preset}
    if arguments.layers:
        network["layers"] = arguments.layers
    train = TrainSettings(
        ranks=arguments.ranks,
        batch=arguments.ranks,
        device="cpu",
        optimizer="adamw",
        parallel=_PARALLEL[arguments.mode],
    )
    settings = LanguageSettings(network=network, context=64, train=train)
    vocabulary = _VOCABULARY.get(arguments.preset, 50_257)
    facts = DataFacts(
        path="",
        synthetic=True,
        fingerprint="",
        train=1,
        validation=1,
        facts={"vocabulary": vocabulary},
    )
    return LanguageModel.create(settings, facts), train


def measure(arguments: argparse.Namespace, folder: Path, rank: int) -> dict[str, float]:
    """Return the bytes of a rank's part, and the growth of the memory of this process."""
    torch.set_num_threads(1)
    workload, train = language_model(arguments)
    device = torch.device("cpu")
    plan = parallel_plan(rank, train.ranks, device, f"file://{folder / 'store'}", train)
    precision = Precision.named("fp32", device)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _resident("VmRSS")
    backend = TorchBackend(train, workload, plan, precision, device, seed=1)
    if arguments.restore:
        state = TrainState(backend, Checkpoints(folder))
        assert state.restore(lambda file, reason: None) is not None
    after, peak = _resident("VmRSS"), _resident("VmHWM")
    plan.barrier()
    parts = [local(plan.part(parameter)) for parameter in backend._model.parameters()]
    part = sum(tensor.nbytes for tensor in parts) * (2 + _STATES)
    backend.close()
    plan.close()
    return {"part": part, "peak": peak - before, "kept": after - before}


def write_checkpoint(arguments: argparse.Namespace, folder: Path) -> int:
    """Write a checkpoint of zeros; return its size."""
    workload, _ = language_model(arguments)
    model: nn.Module = on_meta(workload.model, arguments.preset)
    weights = {name: torch.zeros(tensor.shape) for name, tensor in model.state_dict().items()}
    state = {
        name: {
            "step": torch.tensor(1.0),
            **{key: torch.zeros(weight.shape) for key in ("exp_avg", "exp_avg_sq")},
        }
        for name, weight in model.named_parameters()
    }
    progress = {"step": 1, "best": None, "worse": 0}
    packed = pack({"model": weights, "optimizer": state, "scaler": {}, **progress})
    checkpoints = Checkpoints(folder)
    sha256 = checkpoints.write_state(1, packed)
    checkpoints.complete(
        Checkpointed(
            step=1,
            sha256=sha256,
            loss=None,
            file=checkpoint_file(1),
            size_bytes=packed.size_bytes,
            kept=False,
        )
    )
    return packed.size_bytes


def _resident(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    (value,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(value) * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="llama-1b")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mode", choices=_PARALLEL, default="sharded")
    parser.add_argument("--restore", action="store_true")
    parser.add_argument("--inside", nargs=2, metavar=("FOLDER", "RANK"))
    arguments = parser.parse_args()
    if arguments.inside:
        folder, rank = arguments.inside
        print(json.dumps(measure(arguments, Path(folder), int(rank))), flush=True)
        os._exit(0)  # without waiting for the threads of the process group
    with tempfile.TemporaryDirectory() as folder:
        if arguments.restore:
            print(f"checkpoint of {write_checkpoint(arguments, Path(folder)) / _GB:.2f} GB")
        began_s = time.monotonic()
        options = ["--preset", arguments.preset, "--layers", arguments.layers]
        options += ["--ranks", arguments.ranks, "--mode", arguments.mode]
        options += ["--restore"] if arguments.restore else []
        ranks = [
            subprocess.Popen(
                list(
                    map(
                        str,
                        [
                            sys.executable,
                            "-m",
                            "benchmarks.rank_memory",
                            *options,
                            "--inside",
                            folder,
                            rank,
                        ],
                    )
                ),
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in range(arguments.ranks)
        ]
        outputs = [process.communicate()[0] for process in ranks]
    print(f"{arguments.preset}, {arguments.mode}, {time.monotonic() - began_s:.0f} s")
    print("| rank | part | peak | peak / part | at the end |")
    print("|---|---|---|---|---|")
    for rank, output in enumerate(outputs):
        found = json.loads(output.splitlines()[-1])
        part, peak, kept = (found[key] for key in ("part", "peak", "kept"))
        print(
            f"| {rank} | {part / _GB:.2f} GB | {peak / _GB:.2f} GB | {peak / part:.2f} | "
            f"{kept / _GB:.2f} GB |"
        )


if __name__ == "__main__":
    main()
