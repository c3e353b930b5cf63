"""Tokens a second of language models on one GPU, beside plain models that a person would write.

    python -m benchmarks.language_speed [ROW …] [--seconds 4] [--together]

Each row is a whole step (forward, loss, backward, AdamW) in a process of its own: this package's
engine on a batch that stays on the GPU and from packed text on disk, or a plain model with
torch.compile on random tokens. With ``--together``, all rows are compiled at the same time and
timed one after the other, which needs memory for all of them; otherwise one row follows the other.
The table has the median of five windows and the extremes; below it are the milliseconds of a step
by kind of kernel, of three profiled steps.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.train_speed import batches, engine
from vflops.machine.telemetry.kernel_names import kind_of

_ATTENTION = re.compile("sdpa|flash|fmha|dot_do_o|convert_dq")
"""In the names of kernels of attention."""

GPT2 = ["network.preset=gpt2-124m", "context=1024", "train.batch=64"]
LARGE = [
    "network.preset=gpt2-1558m",
    "network.layers=24",
    "network.width=2048",
    "network.heads=16",
    "network.kv_heads=16",
    "network.mlp_width=8192",
    "context=2048",
    "train.batch=32",
]
LLAMA = [
    "network.preset=llama-1b",
    "synthetic.vocabulary=32000",
    "context=2048",
    "train.batch=32",
]
LLAMA_8B = [
    "network.preset=llama-8b",
    "synthetic.vocabulary=128256",
    "context=8192",
    "train.batch=1",
]
ROWS: dict[str, list[str]] = {
    "gpt2-124m-bf16": [*GPT2, "train.precision=mixed-bf16"],
    "gpt2-124m-fp8": [*GPT2, "train.precision=mixed-fp8"],
    "1.3b-bf16": [*LARGE, "train.precision=mixed-bf16"],
    "1.3b-fp8": [*LARGE, "train.precision=mixed-fp8"],
    "llama-1b-bf16": [*LLAMA, "train.precision=mixed-bf16"],
    "llama-8b-bf16": [*LLAMA_8B, "train.precision=bf16"],
    "llama-8b-fp8": [*LLAMA_8B, "train.precision=fp8"],
    "plain-124m": [],
    "plain-1.3b": [],
    "transformers-llama-1b": [],
}
TEXT = [
    "target=1e-9",
    "synthetic.vocabulary=50257",
    "synthetic.train=4194304",
    "synthetic.validation=65536",
]


class PlainBlock(nn.Module):
    """A layer as in many tutorials."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm = nn.LayerNorm(width, bias=False)
        self.second_norm = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        samples, tokens, width = x.shape
        parts = self.qkv(self.first_norm(x)).view(samples, tokens, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(samples, tokens, width))
        inner = functional.gelu(self.up(self.second_norm(x)), approximate="tanh")
        result: Tensor = x + self.down(inner)
        return result


class PlainModel(nn.Module):
    """GPT-2 as in many tutorials, with its loss; the vocabulary is padded to a multiple of 128."""

    def __init__(self, layers: int, width: int, heads: int, context: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50304, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(PlainBlock(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, bias=False)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        logits = functional.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def plain_step(name: str) -> tuple[Callable[[], Tensor], int]:
    """A step of a plain model in bf16 autocast, and its tokens."""
    if name == "transformers-llama-1b":
        return _transformers_step()
    layers, width, heads, context, batch = (
        (12, 768, 12, 1024, 64) if name == "plain-124m" else (24, 2048, 16, 2048, 8)
    )
    with torch.device("cuda"):
        model = PlainModel(layers, width, heads, context)
    return _compiled(lambda x, y: model(x, y), model, batch, context, 50257), batch * context


def _transformers_step() -> tuple[Callable[[], Tensor], int]:
    from transformers import LlamaConfig, LlamaForCausalLM

    make_config: Any = LlamaConfig  # its arguments are not all annotated
    config = make_config(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=32000,
        max_position_embeddings=4096,
        attn_implementation="sdpa",
        tie_word_embeddings=True,
    )
    make_model: Any = LlamaForCausalLM
    model = make_model(config).cuda()
    step = _compiled(lambda x, y: model(input_ids=x, labels=x).loss, model, 8, 2048, 32000)
    return step, 8 * 2048


def _compiled(
    loss_of: Callable[[Tensor, Tensor], Tensor],
    model: nn.Module,
    batch: int,
    context: int,
    vocabulary: int,
) -> Callable[[], Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x, y = torch.randint(0, vocabulary, (2, batch, context), device="cuda")

    @torch.compile
    def objective() -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return loss_of(x, y)

    def step() -> Tensor:
        loss: Tensor = objective()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def speeds(step: Callable[[], Tensor], tokens: int, seconds: float) -> list[float]:
    """Tokens a second in five windows of ``seconds`` in all."""
    found = []
    for _ in range(5):
        torch.cuda.synchronize()
        steps, start_s = 0, time.perf_counter()
        while time.perf_counter() - start_s < seconds / 5:
            for _ in range(2):
                step()
            torch.cuda.synchronize()
            steps += 2
        found.append(steps * tokens / (time.perf_counter() - start_s))
    return found


def kernel_times(step: Callable[[], Tensor], steps: int = 3) -> dict[str, float]:
    """Milliseconds of a step by kind of kernel; attention apart from other products."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    times: dict[str, float] = {}
    spans = []
    for event in profiler.events() or []:
        if event.device_type.name != "CUDA":
            continue
        spans.append((event.time_range.start, event.time_range.end))
        kind = "attention" if _ATTENTION.search(event.name) else str(kind_of(event.name))
        times[kind] = times.get(kind, 0.0) + event.time_range.elapsed_us() / 1000 / steps
    busy_ms = sum(times.values())
    whole_ms = (max(end for _, end in spans) - min(start for start, _ in spans)) / 1000 / steps
    return {**times, "no kernel": whole_ms - busy_ms}


def measure(name: str, folder: Path, seconds: float, ready: Callable[[], None]) -> dict[str, Any]:
    """The row ``name`` in this process; ``ready`` waits for the turn of this row."""
    began_s = time.perf_counter()
    if not ROWS[name]:
        step, tokens = plain_step(name)
        torch.set_float32_matmul_precision("high")
        for _ in range(4):
            loss = float(step())
        ready_s = time.perf_counter() - began_s
        ready()
        return {
            "row": name,
            "kept": speeds(step, tokens, seconds),
            "packed": None,
            "kernels": kernel_times(step),
            "loss": loss,
            "ready_s": ready_s,
            "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
        }
    changes = ["train.optimizer=adamw", "train.warmup_epochs=0", *TEXT, *ROWS[name]]
    arguments = argparse.Namespace(workload="language-model", profile="gpu", set=changes)
    made = engine(arguments, folder)
    with made.precision.settings():
        source = batches(made)
        incoming = iter(source)
        kept = [next(incoming)]
        for _ in range(6):
            loss = float(made.state.take_step(kept, 1e-4))
        tokens = kept[0][0].numel()
        ready_s = time.perf_counter() - began_s
        ready()
        rates = speeds(lambda: made.state.take_step(kept, 1e-4), tokens, seconds)
        packed = speeds(lambda: made.state.take_step([next(incoming)], 1e-4), tokens, seconds)
        kernels = kernel_times(lambda: made.state.take_step(kept, 1e-4))
        source.close()
    return {
        "row": name,
        "kept": rates,
        "packed": packed,
        "kernels": kernels,
        "loss": loss,
        "ready_s": ready_s,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--inside", type=Path)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        (name,) = arguments.rows
        with tempfile.TemporaryDirectory() as folder, Turn(arguments.inside, name) as turn:
            result = measure(name, Path(folder), arguments.seconds, turn.wait)
        print(json.dumps(result), flush=True)
        return
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    print("| row | on the GPU | from packed text | ready | memory | loss |")
    print("|---|---|---|---|---|---|", flush=True)
    groups = [arguments.rows] if arguments.together else [[row] for row in arguments.rows]
    kernels: dict[str, dict[str, float]] = {}
    for group in groups:
        with tempfile.TemporaryDirectory() as shared:
            Path(shared, "rows").write_text("\n".join(group))
            command = [sys.executable, "-m", "benchmarks.language_speed", "--inside", shared]
            started = [
                subprocess.Popen(
                    [*command, "--seconds", str(arguments.seconds), row],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for row in group
            ]
            for row, process in zip(group, started, strict=True):
                if found := show(row, process.communicate()[0]):
                    kernels[row] = found["kernels"]
    show_kernels(kernels)


class Turn:
    """Waits until all rows of a group are compiled, and lets one after the other be timed."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._lock = (folder / "lock").open("w")

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        # A row that failed must not keep the others waiting.
        (self._folder / f"ready-{self._name}").touch()
        self._lock.close()

    def wait(self) -> None:
        (self._folder / f"ready-{self._name}").touch()
        rows = (self._folder / "rows").read_text().split("\n")
        while not all((self._folder / f"ready-{row}").exists() for row in rows):
            time.sleep(0.2)
        fcntl.flock(self._lock, fcntl.LOCK_EX)


def show_kernels(found: dict[str, dict[str, float]]) -> None:
    kinds = sorted({kind for times in found.values() for kind in times})
    print(f"\n| ms of a step | {' | '.join(kinds)} |\n|---{'|---' * len(kinds)}|")
    for row, times in found.items():
        print(f"| {row} | {' | '.join(f'{times.get(kind, 0.0):.1f}' for kind in kinds)} |")


def show(row: str, output: str) -> dict[str, Any] | None:
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        print(f"| {row} | failed | | | | |", flush=True)
        return None
    found: dict[str, Any] = json.loads(lines[-1])
    print(
        f"| {row} | {_range(found['kept'])} | {_range(found['packed'])} | "
        f"{found['ready_s']:.0f} s | {found['memory_gib']:.0f} GiB | {found['loss']:.3f} |",
        flush=True,
    )
    return found


def _range(rates: list[float] | None) -> str:
    if rates is None:
        return "–"
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


if __name__ == "__main__":
    main()
