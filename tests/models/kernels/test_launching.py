"""Kernels are compiled together once, without being launched."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from vflops.models.kernels.launching import compile_together, launch

CPU = torch.device("cpu")
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


class FakeKernel:
    """Records whether it is compiled or launched."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments, **options: self.calls.append(("launched", grid, *arguments))

    def warmup(self, *arguments: object, grid: tuple[int, ...], **options: object) -> FakeKernel:
        self.calls.append(("compiled", grid, *arguments))
        return self

    @property
    def run(self) -> None:
        """Compile the launcher."""
        self.calls.append(("loaded",))


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def test_they_are_compiled_once_and_launched_afterwards(tmp_path: Path) -> None:
    kernel = FakeKernel()

    def step() -> None:
        launch(kernel, (2,), "x", WIDTH=4)

    compile_together("a step", step, CPU)
    compile_together("a step", step, CPU)
    assert kernel.calls == [("compiled", (2,), "x"), ("loaded",)]
    step()
    compile_together("another step", step, CPU)
    names = ["compiled", "loaded", "launched", "compiled", "loaded"]
    assert [call[0] for call in kernel.calls] == names
    assert len(list(tmp_path.iterdir())) == 2


def test_a_compilation_that_fails_is_repeated_the_next_time(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError("ptxas")

    with pytest.raises(RuntimeError, match="ptxas"):
        compile_together("a step", fail, CPU)
    assert not list(tmp_path.iterdir())
    kernel = FakeKernel()
    launch(kernel, (1,))
    assert kernel.calls == [("launched", (1,))]
