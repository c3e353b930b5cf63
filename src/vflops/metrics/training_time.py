"""The number of training steps, from which ``vflops plan`` and ``predict`` estimate the time."""

from __future__ import annotations

import math

from vflops.metrics.arguments import require_count, require_non_negative, require_positive


def training_steps(*, epochs: float, samples: int, batch_size: int) -> int:
    """Return the number of steps for ``epochs`` epochs of ``samples`` in batches of ``batch_size``.

    Batches continue across epochs, so only the very last batch is filled up.
    """
    require_positive("epochs", epochs)
    require_count("samples", samples, at_least=1)
    require_count("batch_size", batch_size, at_least=1)
    if isinstance(epochs, int):
        return -(-epochs * samples // batch_size)
    return math.ceil(epochs * samples / batch_size)


def kept_steps(*, end: int, segments: int) -> tuple[int, ...]:
    """Return the steps at which ``segments`` equal parts of ``end`` steps end.

    Their states are kept, so that an audit can train each part again. Parts that would be shorter
    than a step are merged.
    """
    return tuple(sorted({-(-end * part // segments) for part in range(1, segments + 1)} - {0}))


def training_time_s(
    *,
    samples: int,
    samples_per_s: float,
    start_s: float = 0.0,
    evaluated: int = 0,
    evaluated_per_s: float | None = None,
) -> float:
    """Return the seconds from process start to the last evaluation.

    Evaluations whose speed is not known take no time.
    """
    require_positive("samples_per_s", samples_per_s)
    require_non_negative("start_s", start_s)
    evaluation_s = evaluated / evaluated_per_s if evaluated_per_s else 0.0
    return start_s + samples / samples_per_s + evaluation_s
