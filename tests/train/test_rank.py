"""The process of a rank, as the launcher starts it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_runs import GOOD, run

VARIABLES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


def test_a_rank_keeps_compiled_kernels_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("VFLOPS_CACHE", str(cache))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # The command inherits the environment of its rank.
    tell = f'open(r"{tmp_path}/told", "w").write(json.dumps(dict(os.environ)))\n'
    run(tmp_path, tell + GOOD)
    told = json.loads((tmp_path / "told").read_text())
    folders = {Path(told[name]) for name in VARIABLES}
    assert len(folders) == 2
    assert {folder.parent for folder in folders} == {cache / "kernels"}
