"""Tensors and plain values from one rank to another; nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None


@dataclass(frozen=True)
class Layout:
    """How a tensor is sent: messages have no gaps, and what lies channels last is not turned."""

    shape: tuple[int, ...]
    """As it is sent."""
    dtype: torch.dtype
    last: bool
    """Whether a batch of images lies channels last."""

    @classmethod
    def of(cls, tensor: Tensor) -> Layout:
        """The layout in which ``tensor`` is sent without a copy, if there is one."""
        images = tensor.dim() == 4 and not tensor.is_contiguous()
        last = images and tensor.is_contiguous(memory_format=torch.channels_last)
        shape = tensor.permute(0, 2, 3, 1).shape if last else tensor.shape
        return cls(tuple(shape), tensor.dtype, last)

    def packed(self, tensor: Tensor) -> Tensor:
        """``tensor`` as it is sent."""
        sent = (tensor.permute(0, 2, 3, 1) if self.last else tensor).to(self.dtype).contiguous()
        if tuple(sent.shape) != self.shape:
            raise ValueError(f"{tuple(sent.shape)} is to be sent where {self.shape} is expected")
        return sent

    def unpacked(self, sent: Tensor) -> Tensor:
        """The tensor that was sent, in the same memory."""
        return sent.permute(0, 3, 1, 2) if self.last else sent

    def empty(self, device: torch.device | str) -> Tensor:
        """Room for what is sent."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class Post:
    """The ways between two ranks: words through the hosts, tensors from device to device."""

    hosts: Group
    tensors: Group
    device: torch.device

    def send(self, value: Any, to: int) -> None:
        """Send numbers, words, None and tensors, in mappings and lists, to a rank of the world."""
        tensors: list[Tensor] = []
        words = json.dumps(_written(value, tensors)).encode()
        flat = torch.frombuffer(bytearray(words), dtype=torch.uint8)
        dist.send(torch.tensor(len(flat)), to, group=self.hosts)
        dist.send(flat, to, group=self.hosts)
        for tensor in tensors:
            dist.send(tensor, to, group=self.tensors)

    def receive(self, source: int) -> Any:
        """What a rank of the world sent."""
        length = torch.zeros((), dtype=torch.int64)
        dist.recv(length, source, group=self.hosts)
        flat = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(flat, source, group=self.hosts)
        return self._read(json.loads(flat.numpy().tobytes()), source)

    def _read(self, form: Any, source: int) -> Any:
        if isinstance(form, list):
            return [self._read(each, source) for each in form]
        if not isinstance(form, dict):
            return form
        if "values" in form:
            return {name: self._read(each, source) for name, each in form["values"].items()}
        layout = Layout(tuple(form["shape"]), getattr(torch, form["dtype"]), form["last"])
        room = layout.empty(self.device)
        dist.recv(room, source, group=self.tensors)
        return layout.unpacked(room)


def _written(value: Any, tensors: list[Tensor]) -> Any:
    """``value`` with forms in place of its tensors, which are put in ``tensors`` in order."""
    if isinstance(value, Tensor):
        layout = Layout.of(value)
        tensors.append(layout.packed(value.detach()))
        dtype = str(layout.dtype).removeprefix("torch.")
        return {"shape": layout.shape, "dtype": dtype, "last": layout.last}
    if isinstance(value, Mapping):
        return {"values": {name: _written(each, tensors) for name, each in value.items()}}
    return [_written(each, tensors) for each in value] if isinstance(value, list | tuple) else value
