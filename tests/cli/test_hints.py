"""Hints of commands, called in this process: what to type instead."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from vflops.cli.terminal.columns import columns
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


def test_too_many_ranks_for_batch_and_machine_lead_to_a_command_that_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """More ranks than the batch has samples and the machine has cores: both must fit."""
    with pytest.raises(UsageError, match="9999 ranks do not fit on this machine") as error:
        plan(IC, profile="tiny", ranks=9999)
    suited = re.match(r"use --ranks (\d+)", str(error.value.hint))
    assert suited is not None
    plan(IC, profile="tiny", ranks=int(suited[1]), json=True)
    assert json.loads(capsys.readouterr().out)["placements"]
    with pytest.raises(UsageError, match="use at most 32 ranks"):  # the nodes are others
        plan(IC, profile="tiny", ranks=9999, nodes=1, slots=9999)


def test_a_command_of_a_narrow_table_is_not_broken_at_hyphens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    command = "vflops run image-classification --profile tiny --set train.warmup_epochs=0"
    for padding in range(30):
        shown = columns([["time", "x" * padding + " " + command]])
        assert " ".join(shown.split()).endswith(command)


def test_waves_need_an_ensemble_however_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no workload has several models") as error:
        run(IC, profile="tiny", waves=True, out=tmp_path)
    assert error.value.hint == "add --models M"
    with pytest.raises(UsageError, match="--wait-limit 1m needs --wait-quiet"):  # comes after that
        run(IC, profile="tiny", set_=["bagging.models=2"], waves=True, wait_limit="1m")
