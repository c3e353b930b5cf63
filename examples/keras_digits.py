"""A Keras 3 network, as one model or as an ensemble.

vflops run command --config examples/keras_digits.toml --models 2

It also runs without vflops: python examples/keras_digits.py
"""

import json
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # or torch, or tensorflow

import keras
import numpy as np
from sklearn.datasets import load_digits

VALIDATION = 360


def setting(name: str, default: str) -> str:
    """Return a setting that vflops passes, or the default if the script runs without vflops."""
    return os.environ.get(f"VFLOPS_{name}") or default


def report(**values: object) -> None:
    """Report to vflops: one JSON object per line."""
    print(json.dumps(values), flush=True)


class Reports(keras.callbacks.Callback):
    """Reports the progress to vflops after every epoch."""

    def __init__(self, samples: int) -> None:
        super().__init__()
        self.samples = samples

    def on_train_begin(self, logs: dict | None = None) -> None:
        """Report that start-up is over."""
        report(samples=0)

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        """Report samples, loss and quality."""
        samples, logs = (epoch + 1) * self.samples, logs or {}
        report(samples=samples, loss=logs["loss"])
        report(samples=samples, quality=logs["val_accuracy"], evaluated=VALIDATION)


def main() -> None:
    """Train on the sample of this job, and write the predictions if it is one of an ensemble."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))  # the same split in every job
    x, y = images[order].astype(np.float32) / 16, labels[order]
    path = setting("INDICES", "")
    sample = VALIDATION + (np.load(path) if path else np.arange(len(x) - VALIDATION))

    keras.utils.set_random_seed(int(setting("SEED", "1")) % 2**32)
    hidden = keras.layers.Dense(128, activation="relu")
    model = keras.Sequential(
        [keras.Input((64,)), hidden, keras.layers.Dense(10, activation="softmax")]
    )
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(
        x[sample],
        y[sample],
        batch_size=int(setting("BATCH", "32")),
        epochs=int(setting("EPOCHS", "5")),
        validation_data=(x[:VALIDATION], y[:VALIDATION]),
        callbacks=[Reports(len(sample))],
        verbose=0,
    )
    if path := setting("PREDICTIONS", ""):
        np.savez(path, predictions=model.predict(x[:VALIDATION], verbose=0), labels=y[:VALIDATION])


if __name__ == "__main__":
    main()
