"""Models that run some of their layers in a context manager of torch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from tests.support.counted_models.definition import applied, built, linear, real


def teacher(m: Any, x: Tensor) -> Any:
    """A student and what a teacher says, which is not trained."""
    with torch.inference_mode():
        taught = m.teacher(x)
    return m.student(x.flatten(1)), taught.clone()


def convolutional_teacher() -> nn.Module:
    return nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 5, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.lstm(x)[0]
        return outputs


class Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6))

    def forward(self, x: Tensor) -> Tensor:
        mixed = torch.einsum("bti,ij->btj", x @ self.weight, self.weight)
        return F.scaled_dot_product_attention(mixed, x, x, is_causal=True)


def profiled(m: Any, x: Tensor) -> Any:
    with torch.profiler.record_function("first"):
        y = m.first(x)
    return m.second(y)


def threads(m: Any, x: Tensor) -> Any:
    with ThreadPoolExecutor(1) as executor:
        return m.second(executor.submit(m.first, x).result())


def product_in_a_thread(m: Any, x: Tensor) -> Any:
    with ThreadPoolExecutor(1) as executor:
        return m.second(executor.submit(torch.matmul, x, m.first.weight.t()).result())


def autocast_by_device(m: Any, x: Tensor) -> Any:
    with torch.autocast(x.device.type, torch.bfloat16):
        return m.second(m.first(x).relu()).float()


def saved_on_the_cpu(m: Any, x: Tensor) -> Any:
    with torch.autograd.graph.save_on_cpu():
        return m.second(m.first(x).tanh())


def nested(m: Any, x: Tensor) -> Any:
    rows = torch.nested.as_nested_tensor([x[:2], x[1:]], layout=torch.jagged)
    return m.first(rows).values()


def conditional(m: Any, x: Tensor) -> Any:
    """What torch.cond calls, without the compiler."""
    branches = (lambda y: (m.first(y),), lambda y: (m.first(y * 2),))
    return torch.ops.higher_order.cond(x.sum() > 0, *branches, (x,))


class Subclass(Tensor):
    """A tensor with another name."""


def subclassed(m: Any, x: Tensor) -> Any:
    return m.second(m.first(x.as_subclass(Subclass)))


SEQUENCES = real(2, 3, 6)
FIRST_SECOND = {"first": linear(6, 5), "second": linear(5, 3)}

MODELS = [
    applied(
        "inference-mode convolution",
        teacher,
        SEQUENCES,
        teacher=convolutional_teacher,
        student=linear(18, 2),
    ),
    applied("inference-mode LSTM", teacher, SEQUENCES, teacher=Recurrent, student=linear(18, 2)),
    applied("inference-mode products", teacher, SEQUENCES, teacher=Products, student=linear(18, 2)),
    applied("profiled", profiled, real(4, 6), **FIRST_SECOND),
    applied("tensor subclass", subclassed, real(4, 6), **FIRST_SECOND),
    applied("layer in a thread", threads, real(4, 6), **FIRST_SECOND),
    applied("product in a thread", product_in_a_thread, real(4, 6), **FIRST_SECOND),
    applied("autocast by device type", autocast_by_device, real(4, 6), **FIRST_SECOND),
    applied("activations on the CPU", saved_on_the_cpu, real(4, 6), **FIRST_SECOND),
    applied("nested tensors", nested, real(4, 6), **FIRST_SECOND),
    applied("conditional operator", conditional, real(4, 6), **FIRST_SECOND),
    built("data parallel", lambda: nn.DataParallel(nn.Linear(6, 3)), real(4, 6)),
]
