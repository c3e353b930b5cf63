"""The steps of a training, as the trainer takes them."""

from __future__ import annotations

import pytest

from vflops.metrics.training_time import training_steps


def test_only_the_last_batch_of_a_training_is_filled_up() -> None:
    assert training_steps(epochs=3, samples=10, batch_size=4) == 8  # 30 samples, not 3 × 3 batches
    assert training_steps(epochs=2, samples=8, batch_size=4) == 4
    assert training_steps(epochs=2.5, samples=10, batch_size=4) == 7


def test_a_training_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="samples"):
        training_steps(epochs=1, samples=0, batch_size=4)
