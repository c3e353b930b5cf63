"""Sharded data parallelism in half precision; test_modes has it in double."""

from __future__ import annotations

import math
from pathlib import Path

from tests.support.train_runs import losses, planned, run_ranks
from vflops.record.formats.job_events import Finished


def test_blocks_with_weights_of_two_types_are_sharded(tmp_path: Path) -> None:
    """In pure fp16 batch norm keeps its weights in fp32, so every block has both types."""
    settings = (
        "epochs=1",
        "warmup_epochs=0",
        "precision=fp16",
        "accumulate=2",
        "ranks=2",
        "parallel.mode=sharded",
    )
    folder = planned(tmp_path, *(f"train.{setting}" for setting in settings))
    log = run_ranks(folder, 2)
    assert len(losses(log)) == 8
    assert all(math.isfinite(loss) for loss in losses(log))
    assert folder.history().events("finished", job=1)[-1].payload(Finished).step == 8
