"""Hints of commands, called in this process: what to type instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from vflops.cli.train.plan import plan
from vflops.cli.train.run import run
from vflops.errors import UsageError

IC = "image-classification"


def test_a_device_that_is_missing_is_named_by_the_setting_that_asked_for_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="device 'hpu' is not available") as error:
        run(IC, profile="tiny", set_=["train.device=hpu"], out=tmp_path, quiet=True)
    assert str(error.value.hint).startswith("set train.device to one of: auto, cpu")


def test_a_plan_for_several_nodes_is_run_by_a_scheduler(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan(IC, profile="tiny", nodes=512, slots=2)
    line = capsys.readouterr().err.strip()
    assert line.startswith(f"next: vflops run {IC} ")
    assert "--ranks 2" in line and "--on slurm --nodes 512" in line


def test_waves_need_an_ensemble_however_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no workload has several models") as error:
        run(IC, profile="tiny", waves=True, out=tmp_path)
    assert error.value.hint == "add --models M"
    with pytest.raises(UsageError, match="--wait-limit 1m needs --wait-quiet"):  # comes after that
        run(IC, profile="tiny", set_=["bagging.models=2"], waves=True, wait_limit="1m")
