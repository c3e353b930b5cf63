"""How much work a training step and an epoch are, and how fast it was done.

Equations are those of HPC AI500 V3.0. FLOPs are counts, so integers, and are called ``ops`` here;
FLOPS are FLOPs a second.
"""

from __future__ import annotations

from vflops.metrics.arguments import require_count, require_positive


def apc(*, ops_per_sample: int, batch_size: int, models: int = 1) -> int:
    """FLOPs of one iteration, the *amount of parallel computation*: eq. 3, with M models eq. 4.

    Both equations add up the cost of every sample in the batch. With one model and static shapes
    each sample costs the same, and the sums become a product.
    """
    require_count("ops_per_sample", ops_per_sample)
    require_count("batch_size", batch_size, at_least=1)
    require_count("models", models, at_least=1)
    return models * batch_size * ops_per_sample


def epoch_ops(*, ops_per_sample: int, samples: int, models: int = 1) -> int:
    """FLOPs of one epoch of ``samples`` for each of ``models``: the numerator of eq. 6.

    It is the sum of ``apc`` over the epoch's iterations. The batch size drops out, and a smaller
    last batch counts for the samples it holds: nothing is rounded to whole batches.
    """
    require_count("ops_per_sample", ops_per_sample)
    require_count("samples", samples)
    require_count("models", models, at_least=1)
    return models * samples * ops_per_sample


def flops(*, ops: int, time_s: float) -> float:
    """FLOPs a second: eq. 6 when given one epoch's operations and seconds.

    Given all completed training and validation on all workers, and the seconds since the start,
    it is AIPerf's score.
    """
    require_count("ops", ops)
    require_positive("time_s", time_s)
    return ops / time_s


def system_scale(*, models: int, parallel_degree: int) -> int:
    """Accelerators taken by ``models`` jobs of ``parallel_degree`` ranks each: eq. 5.

    The paper defines the scale in nodes and then uses the equation with GPUs; here it is
    accelerators throughout.
    """
    require_count("models", models, at_least=1)
    require_count("parallel_degree", parallel_degree, at_least=1)
    return models * parallel_degree
