"""Wall clocks that are set by an hour while an ensemble trains on a real SLURM."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from tests.support.ensemble_runs import SMALL, ended
from tests.support.programs import start
from tests.support.slurm_bench import SlurmBench
from vflops.record.formats.node import node_records
from vflops.record.readout.contents import Contents
from vflops.results.check.findings import Findings
from vflops.results.score.scoring import score

pytestmark = pytest.mark.cluster


@pytest.fixture
def faketime() -> Path:
    """The library that makes a program see another time, which a file says."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    if not found:
        reason = "no libfaketime on this machine: apt-get install faketime"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return found[0]


CONTROLLER = (
    "import os, runpy, sys; del os.environ['LD_PRELOAD']; sys.argv[0] = 'vflops'; "
    "runpy.run_module('vflops', run_name='__main__')"
)
"""The command, whose own processes, those of SLURM, have the right time."""

AT_START = """
import json, os, threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds) and None
dumps = json.dumps

def dumps_and_sets_the_clock(value, **options):
    text = dumps(value, **options)
    if isinstance(value, dict) and value.get("kind") == os.environ.get("CLOCK_SET_AFTER"):
        with open(os.environ["FAKETIME_TIMESTAMP_FILE"], "w") as file:
            print(os.environ["CLOCK_SET_TO"], file=file)
    return text

json.dumps = dumps_and_sets_the_clock
"""
"""Every Python runs this first: the clock is set after an event of a certain kind.

libfaketime 0.9.10 refuses the absolute times of a sleep.
"""


def wrong_clock(library: Path, file: Path, after: str, to: str) -> dict[str, str]:
    """Return the variables of a Python that sets its wall clock after an event of a kind."""
    file.write_text("+0\n")
    (file.parent / "sitecustomize.py").write_text(AT_START)
    return {
        "PYTHONPATH": os.pathsep.join((str(file.parent), os.environ["PYTHONPATH"])),
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "CLOCK_SET_AFTER": after,
        "CLOCK_SET_TO": to,
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def test_a_node_and_the_controller_are_set_by_an_hour(
    slurm: SlurmBench, tmp_path: Path, faketime: Path
) -> None:
    """The node goes ahead, the controller back; the window is that of the time that passed."""
    node = wrong_clock(faketime, tmp_path / "node-clock", "job", "+3600")
    controller = wrong_clock(faketime, tmp_path / "controller-clock", "job-ended", "-3600")
    exported = " ".join(f"{name}={shlex.quote(value)}" for name, value in node.items())
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/bash\n[ "$SLURMD_NODENAME" != n2 ] || export {exported}\n'
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    python.chmod(0o755)
    (tmp_path / "site.toml").write_text(f'python = "{python}"\n')
    settings = [part for each in (*SMALL, "train.epochs=2") for part in ("--set", each)]
    words = ["-c", CONTROLLER, "run", "image-classification", "--profile", "tiny", *settings]
    began_s = time.monotonic()
    process = start(
        [*words, "--on", "slurm", "--models", "2"], tmp_path, {**os.environ, **controller}
    )
    folder = ended(process, tmp_path)
    passed_s = time.monotonic() - began_s

    second = folder.history().jobs[2][0].events
    assert second[-1].utc_s - second[0].utc_s > 3500  # the clock was set
    own = folder.history().jobs[0][0].events
    assert own[-1].utc_s - own[0].utc_s < -3000
    (scored,) = score(Contents(folder)).ensembles
    assert 0 < scored.window_s < passed_s
    assert scored.flops is not None and scored.vflops is not None
    (described,) = node_records(folder.logged_attempts(2)[0])
    assert described.name == "n2" and abs(described.clock.monotonic_offset_s or 1.0) < 1.0
    findings = Findings.read(folder.findings_file)
    assert {failure.rule for failure in findings.failures} <= {"quiet"}
    (finding,) = (finding for finding in findings.findings if finding.rule == "clocks")
    assert "a wall clock was set " in finding.evidence
