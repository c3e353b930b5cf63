"""The first lines of ``vflops run``: what will happen, and how long it will take."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.dated_runs import Dated, dated_run
from vflops.cli.run_options import RunOptions
from vflops.cli.train.run_opening import opening_lines
from vflops.record import own_runs
from vflops.units import seconds
from vflops.workloads.contract.registry import suite

IC = "image-classification"


def time_of(chosen: RunOptions) -> str:
    return opening_lines(chosen)[1].removeprefix("time  ")


@pytest.mark.parametrize(
    ("chosen", "time"),
    [
        (RunOptions(), "four to five minutes on two cores (profile laptop) or five minutes on"),
        (RunOptions(profile="gpu"), "five minutes on one accelerator (profile gpu)"),
        (RunOptions(IC, profile="tiny"), "half a minute per workload on two cores"),
        (RunOptions(IC, profile="laptop"), "for all workloads: four to five minutes"),
        (RunOptions("automl", for_="1h"), "1h for the search"),
        (RunOptions(IC, set_=("train.epochs=90",)), "the progress shows it"),
        (RunOptions(IC, profile="tiny", models=4), "the progress shows it"),
    ],
)
def test_the_time_is_that_of_the_profile_unless_options_change_it(
    tmp_path: Path, chosen: RunOptions, time: str
) -> None:
    assert time_of(replace(chosen, out=tmp_path)).startswith(time)


def test_every_workload_is_named() -> None:
    assert all(name in opening_lines(RunOptions())[0] for name in suite())


def test_a_run_of_the_same_command_says_how_long_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_runs, "is_own", lambda path: True)
    folder = dated_run(tmp_path, Dated(0, (1.0,)))
    logs = folder.history(0).jobs[0]
    took_s = sum(log.events[-1].utc_s - log.events[0].utc_s for log in logs)
    command = f"vflops run {IC} --profile tiny --set train.epochs=7"
    monkeypatch.setattr("vflops.results.command_line.command", lambda record: command)
    same = RunOptions(IC, profile="tiny", set_=("train.epochs=7",), out=tmp_path)
    other = RunOptions(IC, profile="tiny", set_=("train.epochs=8",), out=tmp_path)
    assert time_of(same) == f"{seconds(took_s)}, as the last such run in {tmp_path}"
    assert "as the last such run" not in time_of(other)


def test_the_lines_do_not_wait_for_the_framework() -> None:
    code = (
        "import sys\n"
        "from vflops.cli.run_options import RunOptions\n"
        "from vflops.cli.train.run_opening import opening_lines\n"
        "opening_lines(RunOptions())\n"
        "print({'torch', 'altair', 'rich'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
