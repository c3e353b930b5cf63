"""A scikit-learn classifier of digits, benchmarked by vflops as one model or as an ensemble.

vflops run command --config examples/sklearn_digits.toml --models 2

It also runs without vflops: python examples/sklearn_digits.py
"""

import json
import os

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

VALIDATION = 360


def setting(name: str, default: str) -> str:
    """Return a setting that vflops passes, or the default if the script runs without vflops."""
    return os.environ.get(f"VFLOPS_{name}") or default


def report(**values: object) -> None:
    """Report to vflops: one JSON object per line."""
    print(json.dumps(values), flush=True)


def main() -> None:
    """Train on the sample of this job, and write the predictions if it is one of an ensemble."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))  # the same split in every job
    x, y = images[order].astype(np.float32) / 16, labels[order]
    held_out, held_out_labels = x[:VALIDATION], y[:VALIDATION]
    x, y = x[VALIDATION:], y[VALIDATION:]
    path = setting("INDICES", "")
    sample = np.load(path) if path else np.arange(len(x))

    seed = int(setting("SEED", "1"))
    rng = np.random.default_rng(seed)
    model = MLPClassifier(
        hidden_layer_sizes=(64,),
        batch_size=int(setting("BATCH", "32")),
        random_state=seed % 2**32,
    )
    report(samples=0)
    for epoch in range(1, int(setting("EPOCHS", "10")) + 1):
        chosen = rng.permutation(sample)
        model.partial_fit(x[chosen], y[chosen], classes=np.arange(10))
        report(samples=epoch * len(sample), loss=float(model.loss_))
    report(phase="evaluation")
    probabilities = model.predict_proba(held_out)
    accuracy = float((probabilities.argmax(1) == held_out_labels).mean())
    report(samples=epoch * len(sample), quality=accuracy, evaluated=VALIDATION)
    if path := setting("PREDICTIONS", ""):
        np.savez(path, predictions=probabilities, labels=held_out_labels)


if __name__ == "__main__":
    main()
