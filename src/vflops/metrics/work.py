"""The operations of a training step and of an epoch, and the speed at which they were done.

Equations are those of HPC AI500 V3.0. FLOPs are counts, so integers, and are called ``ops`` here;
FLOPS are FLOPs per second.
"""

from __future__ import annotations

import math

from vflops.metrics.arguments import require_count, require_positive


def apc(*, ops_per_sample: int, batch_size: int, models: int = 1) -> int:
    """Return the *amount of parallel computation* of an iteration: eq. 3, with M models eq. 4.

    Both equations add up the cost of every sample in the batch. With one model and static shapes
    each sample costs the same, and the sums become a product.
    """
    require_count("ops_per_sample", ops_per_sample)
    require_count("batch_size", batch_size, at_least=1)
    require_count("models", models, at_least=1)
    return models * batch_size * ops_per_sample


def epoch_ops(*, ops_per_sample: int, samples: int, models: int = 1) -> int:
    """Return the FLOPs of one epoch of ``samples`` by each of ``models``: the numerator of eq. 6.

    It is the sum of ``apc`` over the iterations of the epoch. The batch size cancels out, and a
    smaller last batch counts for the samples it holds: nothing is rounded to whole batches.
    """
    require_count("ops_per_sample", ops_per_sample)
    require_count("samples", samples)
    require_count("models", models, at_least=1)
    return models * samples * ops_per_sample


def out_of_bag_samples(samples: int) -> int:
    """Return how many of ``samples`` a bootstrap of the same size is expected to leave out.

    A sample is missed by all n draws with a chance of (1 − 1/n)ⁿ → 1/e, so n/e of them are.
    """
    require_count("samples", samples)
    return round(samples / math.e)


def flops(*, ops: int, time_s: float) -> float:
    """Return FLOPs per second: eq. 6 when given the operations and seconds of one epoch.

    Given all completed training and validation on all workers, and the seconds since the start,
    it is AIPerf's score.
    """
    require_count("ops", ops)
    require_positive("time_s", time_s)
    return ops / time_s


def system_scale(*, models: int, parallel_degree: int) -> int:
    """Return the accelerators that ``models`` jobs of ``parallel_degree`` ranks each use: eq. 5.

    The paper defines the scale in nodes and then applies the equation to GPUs; here it is always
    accelerators.
    """
    require_count("models", models, at_least=1)
    require_count("parallel_degree", parallel_degree, at_least=1)
    return models * parallel_degree
