"""A regression with JAX, Flax and Optax, as one model or as an ensemble.

vflops run command --config examples/flax_sine.toml --models 2

It learns a noisy function of four numbers, and is judged by its mean squared error. It also runs
without vflops: python examples/flax_sine.py
"""

import json
import os

import jax
import numpy as np
import optax
from flax import nnx

TRAIN, VALIDATION = 2000, 500


def setting(name: str, default: str) -> str:
    """Return a setting that vflops passes, or the default if the script runs without vflops."""
    return os.environ.get(f"VFLOPS_{name}") or default


def report(**values: object) -> None:
    """Report to vflops: one JSON object per line."""
    print(json.dumps(values), flush=True)


def draw(count: int, stream: int) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and noisy values, the same in every job."""
    rng = np.random.default_rng(stream)
    inputs = rng.uniform(-1, 1, (count, 4)).astype(np.float32)
    values = np.sin(3 * inputs[:, 0]) * inputs[:, 1] + inputs[:, 2] ** 2
    return inputs, (values + 0.1 * rng.standard_normal(count)).astype(np.float32)


class Network(nnx.Module):
    """A network with one hidden layer."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.hidden, self.last = nnx.Linear(4, 64, rngs=rngs), nnx.Linear(64, 1, rngs=rngs)

    def __call__(self, inputs: jax.Array) -> jax.Array:
        """Return one number per row."""
        return self.last(nnx.tanh(self.hidden(inputs)))[:, 0]


@nnx.jit
def step(model: Network, optimizer: nnx.Optimizer, x: jax.Array, y: jax.Array) -> jax.Array:
    """Update the weights once, and return the loss before the update."""
    loss, gradients = nnx.value_and_grad(lambda model: ((model(x) - y) ** 2).mean())(model)
    optimizer.update(model, gradients)
    return loss


def main() -> None:
    """Train on the sample of this job, and write the predictions if it is one of an ensemble."""
    (x, y), (held_out, truth) = draw(TRAIN, stream=1), draw(VALIDATION, stream=2)
    path = setting("INDICES", "")
    sample = np.load(path) if path else np.arange(TRAIN)
    seed, batch = int(setting("SEED", "1")), int(setting("BATCH", "50"))
    model = Network(nnx.Rngs(seed % 2**32))
    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    rng = np.random.default_rng(seed)
    report(samples=0)
    for epoch in range(1, int(setting("EPOCHS", "10")) + 1):
        # Full batches only, so that one shape is compiled; the last batch repeats samples.
        chosen = np.resize(rng.permutation(sample), -(-len(sample) // batch) * batch)
        for part in chosen.reshape(-1, batch):
            loss = step(model, optimizer, x[part], y[part])
        report(samples=epoch * len(chosen), loss=float(loss))
    report(phase="evaluation")
    predictions = np.asarray(model(held_out))
    error = float(((predictions - truth) ** 2).mean())
    report(samples=epoch * len(chosen), quality=error, evaluated=VALIDATION)
    if path := setting("PREDICTIONS", ""):
        np.savez(path, predictions=predictions, labels=truth)


if __name__ == "__main__":
    main()
