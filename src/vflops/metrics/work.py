"""The operations of a training step and of an epoch, and their speed.

The equations are those of HPC AI500 V3.0. FLOPs are counts, so they are integers, called ``ops``
here. FLOPS are FLOPs per second.
"""

from __future__ import annotations

import math

from vflops.metrics.arguments import require_count, require_positive


def apc(*, ops_per_sample: int, batch_size: int, models: int = 1) -> int:
    """Return the *amount of parallel computation* of an iteration: eq. 3, with M models eq. 4.

    Both equations add the cost of every sample in the batch. With static shapes every sample costs
    the same, and the sums become a product.
    """
    require_count("ops_per_sample", ops_per_sample)
    require_count("batch_size", batch_size, at_least=1)
    require_count("models", models, at_least=1)
    return models * batch_size * ops_per_sample


def epoch_ops(*, ops_per_sample: int, samples: int, models: int = 1) -> int:
    """Return the FLOPs of one epoch of ``samples`` for ``models`` models: the numerator of eq. 6.

    It is the sum of ``apc`` over the iterations of the epoch. The batch size cancels out, and a
    smaller last batch counts with its actual number of samples.
    """
    require_count("ops_per_sample", ops_per_sample)
    require_count("samples", samples)
    require_count("models", models, at_least=1)
    return models * samples * ops_per_sample


def ops_of_samples(*, samples: int, batch_ops: int, batch: int) -> int:
    """Return the FLOPs of ``samples`` samples if a batch of ``batch`` samples takes ``batch_ops``.

    The operations of one sample are a fraction if some operations occur once per batch. The result
    is rounded to an integer, but exact for whole batches.
    """
    require_count("samples", samples)
    require_count("batch_ops", batch_ops)
    require_count("batch", batch, at_least=1)
    return (2 * samples * batch_ops + batch) // (2 * batch)


def out_of_bag_samples(samples: int) -> int:
    """Return how many of ``samples`` a bootstrap of the same size is expected to leave out.

    All n draws miss a given sample with probability (1 − 1/n)ⁿ → 1/e, so n/e samples are expected.
    """
    require_count("samples", samples)
    return round(samples / math.e)


def flops(*, ops: int, time_s: float) -> float:
    """Return FLOPs per second: eq. 6 for the operations and seconds of one epoch.

    For the completed training and validation of all workers and the seconds since the start, this
    is AIPerf's score.
    """
    require_count("ops", ops)
    require_positive("time_s", time_s)
    return ops / time_s


def system_scale(*, models: int, parallel_degree: int) -> int:
    """Return how many accelerators ``models`` jobs of ``parallel_degree`` ranks use: eq. 5.

    The paper defines the scale in nodes and then applies the equation to GPUs. Here it is always in
    accelerators.
    """
    require_count("models", models, at_least=1)
    require_count("parallel_degree", parallel_degree, at_least=1)
    return models * parallel_degree
