"""Messages with tensors and plain values from one rank to another, without pickle."""

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
    """How a tensor is sent: contiguously, and without transposing one in channels-last layout."""

    shape: tuple[int, ...]
    """The shape that is sent."""
    dtype: torch.dtype
    last: bool
    """Whether it is a batch of images in channels-last layout."""

    @classmethod
    def of(cls, tensor: Tensor) -> Layout:
        """Return the layout for sending ``tensor``, without a copy if possible."""
        images = tensor.dim() == 4 and not tensor.is_contiguous()
        last = images and tensor.is_contiguous(memory_format=torch.channels_last)
        shape = tensor.permute(0, 2, 3, 1).shape if last else tensor.shape
        return cls(tuple(shape), tensor.dtype, last)

    def packed(self, tensor: Tensor) -> Tensor:
        """Return ``tensor`` in the layout for sending."""
        sent = (tensor.permute(0, 2, 3, 1) if self.last else tensor).to(self.dtype).contiguous()
        if tuple(sent.shape) != self.shape:
            raise ValueError(f"cannot send shape {tuple(sent.shape)}: expected {self.shape}")
        return sent

    def unpacked(self, sent: Tensor) -> Tensor:
        """Return a received tensor in its own shape, in the same memory."""
        return sent.permute(0, 3, 1, 2) if self.last else sent

    def empty(self, device: torch.device | str) -> Tensor:
        """Return an empty tensor to receive into."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class Messenger:
    """Sends between two ranks: plain values through the hosts, tensors from device to device."""

    hosts: Group
    tensors: Group
    device: torch.device

    def send(self, value: Any, to: int) -> None:
        """Send numbers, strings, None and tensors, in mappings and lists, to a global rank."""
        tensors: list[Tensor] = []
        text = json.dumps(_written(value, tensors)).encode()
        flat = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.send(torch.tensor(len(flat)), to, group=self.hosts)
        dist.send(flat, to, group=self.hosts)
        for tensor in tensors:
            dist.send(tensor, to, group=self.tensors)

    def receive(self, source: int) -> Any:
        """Return what a global rank sent."""
        length = torch.zeros((), dtype=torch.int64)
        dist.recv(length, source, group=self.hosts)
        flat = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(flat, source, group=self.hosts)
        return self._read(json.loads(flat.numpy().tobytes()), source)

    def _read(self, form: Any, source: int) -> Any:
        if isinstance(form, list):
            return [self._read(item, source) for item in form]
        if not isinstance(form, dict):
            return form
        if "values" in form:
            return {name: self._read(item, source) for name, item in form["values"].items()}
        layout = Layout(tuple(form["shape"]), getattr(torch, form["dtype"]), form["last"])
        received = layout.empty(self.device)
        dist.recv(received, source, group=self.tensors)
        return layout.unpacked(received)


def _written(value: Any, tensors: list[Tensor]) -> Any:
    """Return ``value`` with descriptions of its tensors, which are appended to ``tensors``."""
    if isinstance(value, Tensor):
        layout = Layout.of(value)
        tensors.append(layout.packed(value.detach()))
        dtype = str(layout.dtype).removeprefix("torch.")
        return {"shape": layout.shape, "dtype": dtype, "last": layout.last}
    if isinstance(value, Mapping):
        return {"values": {name: _written(item, tensors) for name, item in value.items()}}
    return [_written(item, tensors) for item in value] if isinstance(value, list | tuple) else value
