"""``vflops scale --kind frameworks`` trains with each framework and shows them on one page."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.ensemble_runs import SMALL
from tests.support.programs import start

pytestmark = pytest.mark.frameworks
pytest.importorskip("jax", reason="pip install 'vflops[jax]'")


def test_pytorch_and_jax_are_trained_and_compared(tmp_path: Path) -> None:
    settings = [part for each in (*SMALL, "train.epochs=2") for part in ("--set", each)]
    command = ["-m", "vflops", "scale", "image-classification", "--kind", "frameworks"]
    chosen = ["--frameworks", "pytorch,jax", "--scales", "1", "--profile", "tiny", "--out", "found"]
    process = start([*command, *chosen, *settings], tmp_path, os.environ)
    out, err = process.communicate(timeout=400)
    assert process.returncode in (0, 1), out + err  # 1 if other programs run at the same time
    (result,) = tmp_path.rglob("scale.json")
    points = json.loads(result.read_text())["points"]
    assert [point["variant"] for point in points] == ["pytorch", "jax"]
    pytorch, jax = (point["figures"] for point in points)
    for figures in (pytorch, jax):
        assert figures["samples_per_s"] > 0 and 0 < figures["quality"] < 1
    # XLA also counts element-wise operations; PyTorch has no count of its own.
    assert pytorch["own_count_share"] is None and 0.9 < jax["own_count_share"] < 1.5
    page = (result.parent / "scale.html").read_text()
    assert f"version {jax['framework_version']}" in page
