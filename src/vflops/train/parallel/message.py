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
    """How a tensor is sent: contiguously; channels-last images are sent without transposing."""

    shape: tuple[int, ...]
    """The shape in which the tensor is sent."""
    dtype: torch.dtype
    channels_last: bool
    """Whether the tensor is a batch of images in channels-last layout."""

    @classmethod
    def of(cls, tensor: Tensor) -> Layout:
        """Return the layout for sending ``tensor``, without a copy if possible."""
        is_images = tensor.dim() == 4 and not tensor.is_contiguous()
        channels_last = is_images and tensor.is_contiguous(memory_format=torch.channels_last)
        shape = tensor.permute(0, 2, 3, 1).shape if channels_last else tensor.shape
        return cls(tuple(shape), tensor.dtype, channels_last)

    def packed(self, tensor: Tensor) -> Tensor:
        """Return ``tensor`` in the layout for sending."""
        ordered = tensor.permute(0, 2, 3, 1) if self.channels_last else tensor
        sent = ordered.to(self.dtype).contiguous()
        if tuple(sent.shape) != self.shape:
            raise ValueError(f"cannot send shape {tuple(sent.shape)}: expected {self.shape}")
        return sent.view(-1).view(self.shape)  # dimensions of size 1 may have any stride

    def unpacked(self, sent: Tensor) -> Tensor:
        """Return a received tensor in its original shape, in the same memory."""
        return sent.permute(0, 3, 1, 2) if self.channels_last else sent

    def empty(self, device: torch.device | str) -> Tensor:
        """Return an uninitialised tensor to receive into."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)


@dataclass(frozen=True)
class Messenger:
    """Sends plain values between two hosts, and tensors between two devices."""

    hosts: Group
    tensors: Group
    device: torch.device

    def send(self, value: Any, to: int) -> None:
        """Send ``value`` to a global rank.

        It may consist of numbers, strings, None and tensors, in mappings and lists.
        """
        tensors: list[Tensor] = []
        text = json.dumps(_describe(value, tensors)).encode()
        flat = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.send(torch.tensor(len(flat)), to, group=self.hosts)
        dist.send(flat, to, group=self.hosts)
        for tensor in tensors:
            dist.send(tensor, to, group=self.tensors)

    def receive(self, source: int) -> Any:
        """Return the value that a global rank sent."""
        length = torch.zeros((), dtype=torch.int64)
        dist.recv(length, source, group=self.hosts)
        flat = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(flat, source, group=self.hosts)
        return self._read(json.loads(flat.numpy().tobytes()), source)

    def _read(self, description: Any, source: int) -> Any:
        if isinstance(description, list):
            return [self._read(item, source) for item in description]
        if not isinstance(description, dict):
            return description
        if "values" in description:
            values = description["values"]
            return {name: self._read(item, source) for name, item in values.items()}
        dtype = getattr(torch, description["dtype"])
        layout = Layout(tuple(description["shape"]), dtype, description["last"])
        received = layout.empty(self.device)
        dist.recv(received, source, group=self.tensors)
        return layout.unpacked(received)


def _describe(value: Any, tensors: list[Tensor]) -> Any:
    """Return ``value`` with tensors replaced by descriptions, and append them to ``tensors``."""
    if isinstance(value, Tensor):
        layout = Layout.of(value)
        tensors.append(layout.packed(value.detach()))
        dtype = str(layout.dtype).removeprefix("torch.")
        return {"shape": layout.shape, "dtype": dtype, "last": layout.channels_last}
    if isinstance(value, Mapping):
        return {"values": {name: _describe(item, tensors) for name, item in value.items()}}
    if isinstance(value, list | tuple):
        return [_describe(item, tensors) for item in value]
    return value
