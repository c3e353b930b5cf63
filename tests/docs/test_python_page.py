"""The Python examples of the documentation of ``import vflops`` run as they are printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.markdown import fences
from tests.support.paths import DOCS
from tests.support.ranking_runs import Submitted, submit


def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("RUN", "A", "B")):
        id = f"2026010{number + 1}T000000Z-image-classification-{number:06x}"
        submit(tmp_path, Submitted(id=id)).path.rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    page = DOCS / "how-to" / "python.md"
    examples = [fence.text for fence in fences(page) if fence.language == "python"]
    assert len(examples) == 4
    for number, text in enumerate(examples):
        exec(compile(text, f"{page.name}, example {number}", "exec"), {})
    printed = capsys.readouterr().out
    assert f"{2 * 32 * (64 * 128 + 128 * 10)}" in printed  # the forward pass of the first example
    assert "image-classification" in printed
    assert "VFLOPS" in printed
