"""A two-layer network in plain NumPy, benchmarked by vflops without changes.

vflops run command --config examples/numpy_softmax.toml

It learns which of ten prototypes a noisy vector came from. vflops passes settings in the
environment variables VFLOPS_*. The script also runs without vflops:

python examples/numpy_softmax.py
"""

import json
import os
from pathlib import Path

import numpy as np

FEATURES, HIDDEN, CLASSES = 64, 256, 10
TRAIN, VALIDATION, NOISE = 4000, 1000, 1.4


def setting(name: str, default: str) -> str:
    """Return a setting that vflops passes, or the default if the script runs without vflops."""
    return os.environ.get(f"VFLOPS_{name}") or default


def report(**values: object) -> None:
    """Report to vflops: one JSON object per line."""
    print(json.dumps(values), flush=True)


def draw(count: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy prototypes and their classes, the same in every run."""
    prototypes = np.random.default_rng(0).standard_normal((CLASSES, FEATURES))
    rng = np.random.default_rng(stream)
    labels = rng.integers(0, CLASSES, count)
    inputs = np.tanh(prototypes[labels] * rng.choice([-1, 1], (count, 1)))  # not linear
    inputs += NOISE * rng.standard_normal(inputs.shape)
    return inputs.astype(np.float32), labels


def forward(w: dict, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return hidden activations and class probabilities."""
    hidden = np.maximum(x @ w["w1"] + w["b1"], 0)
    scores = np.exp((s := hidden @ w["w2"] + w["b2"]) - s.max(1, keepdims=True))
    return hidden, scores / scores.sum(1, keepdims=True)


def step(w: dict, x: np.ndarray, labels: np.ndarray, rate: float) -> float:
    """Update the weights by gradient descent, and return the loss before the update."""
    hidden, p = forward(w, x)
    loss = -np.log(p[np.arange(len(x)), labels] + 1e-9).mean()
    p[np.arange(len(x)), labels] -= 1
    p /= len(x)
    back = (p @ w["w2"].T) * (hidden > 0)
    gradients = {"w2": hidden.T @ p, "b2": p.sum(0), "w1": x.T @ back, "b1": back.sum(0)}
    for name, gradient in gradients.items():
        w[name] -= rate * gradient
    return float(loss)


def main() -> None:
    """Train from the last checkpoint, or from the start."""
    seed, epochs = int(setting("SEED", "1")), int(setting("EPOCHS", "6"))
    batch, checkpoint_folder = int(setting("BATCH", "50")), setting("CHECKPOINT", "")
    inputs, labels = draw(TRAIN, stream=1)
    validation_inputs, validation_labels = draw(VALIDATION, stream=2)
    path = setting("INDICES", "")
    indices = np.load(path) if path else np.arange(TRAIN)
    rng = np.random.default_rng(seed)
    w = {
        "w1": rng.normal(0, FEATURES**-0.5, (FEATURES, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": rng.normal(0, HIDDEN**-0.5, (HIDDEN, CLASSES)).astype(np.float32),
        "b2": np.zeros(CLASSES, np.float32),
    }
    epochs_done, state = 0, Path(checkpoint_folder) / "state.npz"
    if checkpoint_folder and state.is_file():
        checkpoint = dict(np.load(state))
        epochs_done, w = int(checkpoint.pop("epoch")), checkpoint
    report(samples=epochs_done * len(indices))
    for epoch in range(epochs_done, epochs):
        order = np.random.default_rng([seed, epoch]).permutation(indices)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            loss = step(w, inputs[chosen], labels[chosen], rate=0.1)
        report(samples=(epoch + 1) * len(indices), loss=loss)
        report(phase="evaluation")
        accuracy = float((forward(w, validation_inputs)[1].argmax(1) == validation_labels).mean())
        report(
            samples=(epoch + 1) * len(indices), quality=accuracy, evaluated=len(validation_inputs)
        )
        if checkpoint_folder:
            report(phase="checkpointing")
            np.savez(state.with_name("new.npz"), epoch=epoch + 1, **w)
            state.with_name("new.npz").replace(state)
            report(phase="training")


if __name__ == "__main__":
    main()
