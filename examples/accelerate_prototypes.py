"""A small PyTorch network with Hugging Face Accelerate, as one model or as an ensemble.

vflops run command --config examples/accelerate_prototypes.toml --models 2

It learns which of ten prototypes a noisy vector came from. It also runs without vflops:
python examples/accelerate_prototypes.py
"""

import json
import os

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset, TensorDataset

TRAIN, VALIDATION = 2000, 500


def setting(name: str, default: str) -> str:
    """Return a setting that vflops passes, or the default if the script runs without vflops."""
    return os.environ.get(f"VFLOPS_{name}") or default


def report(**values: object) -> None:
    """Report to vflops: one JSON object per line; vflops reads those of the first rank."""
    print(json.dumps(values), flush=True)


def draw(count: int, stream: int) -> tuple[Tensor, Tensor]:
    """Return noisy prototypes and their classes, the same in every job."""
    prototypes = np.random.default_rng(0).standard_normal((10, 64))
    rng = np.random.default_rng(stream)
    labels = rng.integers(0, 10, count)
    inputs = prototypes[labels] + 2.5 * rng.standard_normal((count, 64))
    return torch.from_numpy(inputs.astype(np.float32)), torch.from_numpy(labels)


def main() -> None:
    """Train on the sample of this job, and write the predictions if it is one of an ensemble."""
    (inputs, labels), (held_out, truth) = draw(TRAIN, stream=1), draw(VALIDATION, stream=2)
    path = setting("INDICES", "")
    sample = np.load(path) if path else np.arange(TRAIN)

    accelerator = Accelerator(cpu=True)
    set_seed(int(setting("SEED", "1")) % 2**32)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train = Subset(TensorDataset(inputs, labels), sample.tolist())
    batch = int(setting("BATCH", "50")) // accelerator.num_processes
    loader = DataLoader(train, batch_size=batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    report(samples=0)
    for epoch in range(1, int(setting("EPOCHS", "5")) + 1):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        report(samples=epoch * len(sample), loss=loss.item())
    report(phase="evaluation")
    with torch.no_grad():
        outputs = accelerator.unwrap_model(model)(held_out.to(accelerator.device))
    probabilities = outputs.softmax(1).cpu().numpy()
    accuracy = float((probabilities.argmax(1) == truth.numpy()).mean())
    report(samples=epoch * len(sample), quality=accuracy, evaluated=VALIDATION)
    path = setting("PREDICTIONS", "")
    if path and accelerator.is_main_process:
        np.savez(path, predictions=probabilities, labels=truth.numpy())


if __name__ == "__main__":
    main()
