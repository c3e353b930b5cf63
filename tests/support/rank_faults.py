"""Faults of one of two ranks: how long the job takes to end, and which cause it reports.

    python -m tests.support.rank_faults [REPEATS]

Every attempt is run by a real agent; a module on the path of its ranks plants the fault. Prints a
row for each phase and fault: how many attempts ended within the limit with the right cause, and the
longest time. Exit code 1 if one did not.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.train_runs import planned
from vflops.launch.agent_report import AgentReport
from vflops.launch.job_script import AGENT
from vflops.record.files.strict_json import parse_json
from vflops.record.folder import RunFolder

Fault = Literal["exception", "memory", "kill"]
FAULTS: tuple[Fault, ...] = ("exception", "memory", "kill")
PHASES = ("start-up", "compilation", "training", "evaluation", "checkpointing")
"""The start is that of loading data, before the ranks meet; training is the first step."""
LIMIT_S = 10.0
"""How long a job may take to end after the fault."""
SAID: dict[Fault, str] = {
    "exception": "ValueError: planted in ",
    "memory": "allocate memory",
    "kill": "was killed by SIGKILL",
}
_PLANT = """\
import os, signal, time
if os.environ.get("RANK") == os.environ["FAULTY"]:
    from vflops.train import rank_device
    from vflops.train.phase_clock import Clock

    def fault(phase):
        if phase != os.environ["PHASE"]:
            return
        with open(os.environ["FAULT_AT"], "x") as file:
            file.write(str(time.time()))
        if os.environ["FAULT"] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if os.environ["FAULT"] == "memory":
            import torch
            torch.empty(1 << 60, dtype=torch.uint8)
        raise ValueError("planted in " + phase)

    enter, use = Clock.enter, rank_device.use_threads

    def faulty_enter(self, phase):
        before = enter(self, phase)
        fault(phase)
        return before

    def faulty_use(device, ranks):
        fault("start-up")
        return use(device, ranks)

    Clock.enter, rank_device.use_threads = faulty_enter, faulty_use
"""


@dataclass(frozen=True)
class Ended:
    """How an attempt ended after its fault."""

    took_s: float
    outcome: str
    cause: str
    others: frozenset[str] = frozenset()
    """The kinds of failure that the other ranks reported."""


def prepared(place: Path, phase: str) -> RunFolder:
    """Return a run folder with a planned job of two ranks, next to the module with the fault."""
    plant(place)
    compiled = "on" if phase == "compilation" else "off"
    return planned(place / "runs", "train.ranks=2", f"train.compile={compiled}")


def plant(place: Path) -> None:
    """Write the module with the fault."""
    (place / "path").mkdir(exist_ok=True)
    (place / "path" / "sitecustomize.py").write_text(_PLANT)


def fault_variables(
    place: Path, folder: Path, phase: str, fault: Fault, faulty: int
) -> dict[str, str]:
    """Return the variables of ranks of which ``faulty`` fails; it writes when to ``folder``."""
    return {
        "PYTHONPATH": os.pathsep.join([str(place / "path"), os.environ.get("PYTHONPATH", "")]),
        "PHASE": phase,
        "FAULT": fault,
        "FAULTY": str(faulty),
        "FAULT_AT": str(folder / "fault"),
        "OMP_NUM_THREADS": "1",
    }


def attempt(place: Path, folder: RunFolder, phase: str, fault: Fault, faulty: int) -> Ended:
    """Run an attempt in a copy of the folder, in which rank ``faulty`` fails in a phase."""
    copy = Path(tempfile.mkdtemp(dir=place)) / folder.path.name
    shutil.copytree(folder.path, copy)
    done = subprocess.run(
        [sys.executable, *AGENT, str(copy), "1"],
        env={**os.environ, **fault_variables(place, copy.parent, phase, fault, faulty)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    took_s = time.time() - float((copy.parent / "fault").read_text())
    reports = [line for line in done.stderr.splitlines() if line.startswith("{")]
    report = AgentReport.model_validate_json(reports[-1])
    reported = copy.glob(f"jobs/1/*/rank-{1 - faulty}.error.json")
    others = {parse_json(path.read_bytes())["kind"] for path in reported}
    shutil.rmtree(copy.parent)
    return Ended(took_s, report.outcome, report.message, frozenset(others))


def is_right(ended: Ended, fault: Fault, faulty: int) -> bool:
    """Whether a job ended in time, with the fault of the rank as its cause."""
    named = ended.cause.startswith(f"rank {faulty} on ")
    said = SAID[fault] in ended.cause
    expected = "killed" if fault == "kill" else "failed"
    blamed = ended.others <= {"lost-peer"}
    return named and said and blamed and ended.outcome == expected and ended.took_s < LIMIT_S


def main(repeats: int) -> int:
    """Print the table of faults; return the exit code."""
    wrong = 0
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        print("phase          fault      right    longest s", flush=True)
        for phase in PHASES:
            folder = prepared(place, phase)
            for fault in FAULTS:
                right, longest_s = 0, 0.0
                for number in range(repeats):
                    ended = attempt(place, folder, phase, fault, number % 2)
                    longest_s = max(longest_s, ended.took_s)
                    right += is_right(ended, fault, number % 2)
                    if not is_right(ended, fault, number % 2):
                        print(ended, flush=True)
                wrong += repeats - right
                print(f"{phase:14} {fault:10} {right}/{repeats}  {longest_s:9.1f}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
