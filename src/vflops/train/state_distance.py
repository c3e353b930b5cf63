"""How far apart the weights of two states are."""

from __future__ import annotations

from pathlib import Path

import torch

from vflops.errors import FolderError
from vflops.train.state_file import read_state_file, unpack


def relative_distance(first: Path, second: Path) -> float:
    """Return ‖a − b‖ / ‖a‖ over all floating-point tensors of the models in two state files."""
    a, b = _model(first), _model(second)
    if a.keys() != b.keys() or any(a[name].shape != b[name].shape for name in a):
        raise FolderError(f"{first} and {second} are states of different models")
    squares = torch.zeros(2, dtype=torch.float64)
    for name, tensor in a.items():
        if tensor.is_floating_point():
            left, right = tensor.double(), b[name].double()
            squares += torch.stack([(left - right).square().sum(), left.square().sum()])
    distance, norm = squares.sqrt().tolist()
    return float(distance / norm) if norm else float(distance)


def _model(path: Path) -> dict[str, torch.Tensor]:
    try:
        state = unpack(read_state_file(path), path.name)
    except OSError as error:
        raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
    model = state.get("model")
    if not isinstance(model, dict):
        raise FolderError(f"{path} holds no model")
    return {name: value for name, value in model.items() if isinstance(value, torch.Tensor)}
