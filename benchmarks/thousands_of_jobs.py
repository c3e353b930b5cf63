"""How long commands take on a run of thousands of jobs, and how much memory they need.

    python -m benchmarks.thousands_of_jobs --models 64 512 4096

The run folder is made by the pipeline itself: only the launcher differs, which trains the smallest
possible models one after the other in two processes instead of starting an agent for each. The run
is interrupted when its last model has ended; ``attach`` and ``resume`` finish copies of it, and
``score``, ``check`` and ``report`` then read the complete run. Each command is a new process. CPU
times are printed besides wall times, because other work on the machine affects them less.
``--source`` measures another version of vflops on the same run folders.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.browser import Browser
from vflops.config.launch import LaunchSettings
from vflops.errors import Interrupted
from vflops.launch import factory, node_description
from vflops.launch.controller import JobProgress
from vflops.launch.launcher import Launcher
from vflops.launch.node_description import describe_node
from vflops.launch.node_group import SINGLE_NODE
from vflops.launch.placement import THIS_MACHINE, Node
from vflops.machine.system.gather import gather
from vflops.machine.telemetry.sampling import Sampler
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.node import telemetry_file
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.workloads.contract import run_settings

WORKLOAD = "image-classification"
PROCESSES = 2
PART = 64
"""Jobs that a process trains: each leaves the thread of its signals behind."""
SMALLEST = (
    "count.models=[]",
    "micro.benchmarks=[]",
    "telemetry.interval_s=0.05",
    "bagging.waves=true",
    "network.blocks=[1]",
    "network.width=1",
    "synthetic.size=8",
    "size=8",
    "resize=8",
    "synthetic.train=16",
    "synthetic.validation=16",
    "train.batch=16",
    "train.epochs=4",
    "train.warmup_epochs=0",
    "train.device=cpu",
)
"""Four epochs of one step; no ceilings."""
OPENED = "performance.timing.loadEventEnd - performance.timing.navigationStart"


class SequentialJobs(Launcher):
    """Trains jobs one after the other in a few processes that have already imported torch."""

    name = "local"

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    @classmethod
    def nodes(cls, settings: LaunchSettings, device: str) -> list[Node]:
        """Return this machine as a node of one slot."""
        return [Node(THIS_MACHINE, 1)]

    def kill(self) -> None:
        """Do nothing: no job outlives ``start``."""

    def start(self, jobs: Mapping[int, int]) -> Collection[int]:
        """Train all of ``jobs``, and return when they have ended."""
        numbers = list(jobs)
        for start in range(0, len(numbers), PROCESSES * PART):
            part = numbers[start : start + PROCESSES * PART]
            self._train([part[number::PROCESSES] for number in range(PROCESSES)])
        return numbers

    def _train(self, shares: Sequence[Sequence[int]]) -> None:
        fork = multiprocessing.get_context("fork")
        processes = [
            fork.Process(target=train_all, args=(self._folder, share, number))
            for number, share in enumerate(shares)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0, process.exitcode

    def active_jobs(self) -> Collection[int]:
        """Return nothing: no job outlives ``start``."""
        return ()

    def location(self, job: int) -> str:
        """Return the same for all jobs."""
        return "core 0"

    def stop(self) -> None:
        """Do nothing: no job is active."""


def train_all(folder: RunFolder, jobs: Sequence[int], number: int) -> None:
    """Train jobs in this process, on one core, with the code of agents and ranks."""
    from vflops.train import rank

    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[number % len(cores)]})
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "VFLOPS_LAUNCHER": str(os.getppid())}
    # Describing the same machine 4,096 times would take minutes.
    node_description.gather = functools.cache(gather)  # type: ignore[attr-defined]
    for job in jobs:
        attempt = folder.claim_attempt(job)
        path = folder.attempt_folder(job, attempt)
        describe_node(folder, path, SINGLE_NODE)
        interval_s = folder.record.settings.telemetry.interval_s
        with Sampler(telemetry_file(path, 0), folder.path, interval_s):
            code = rank.main(str(folder.path), str(job), str(attempt))
        assert code == 0, code


def make_run(parent: Path, models: int) -> RunFolder:
    """Train ``models`` models, and return the run, interrupted before it evaluates them."""
    factory.launcher = lambda folder, records: SequentialJobs(folder)
    settings = run_settings.load(
        run_settings.profile("tiny", [WORKLOAD]),
        None,
        [*SMALLEST, f"bagging.models={models}", f"models={models}"],
    )
    began_s = time.perf_counter()
    with contextlib.suppress(Interrupted):
        pipeline.start(parent, WORKLOAD, settings, RunObserver(jobs=interrupt_when_over))
    path = latest(parent)
    assert path is not None
    folder = RunFolder.open(path)
    files = [file for file in path.rglob("*") if file.is_file()]
    size_b = sum(file.stat().st_size for file in files)
    print(
        f"{models} models trained in {time.perf_counter() - began_s:.0f} s: "
        f"{len(files)} files, {size_b / 1e6:.1f} MB",
        flush=True,
    )
    return folder


def interrupt_when_over(jobs: Sequence[JobProgress]) -> None:
    """Interrupt the run as Ctrl-C does, once all jobs have ended."""
    if all(job.over for job in jobs):
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    code: int

    def __str__(self) -> str:
        end = "" if self.code in (0, 1) else f", ended with {self.code}"
        return f"{self.wall_s:8.2f} s {self.cpu_s:8.2f} s CPU {self.peak_mb:7.0f} MB{end}"


def cost_of(words: Sequence[str], source: Path, limit_s: float, log: Path) -> Cost:
    """Run ``vflops WORDS`` with the code in ``source`` and return its cost."""
    environment = {**os.environ, "PYTHONPATH": str(source)}
    began_s = time.perf_counter()
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "vflops", *words],
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
        peak_b = 0
        while True:
            # Not ru_maxrss, which includes the memory of this process before the fork.
            peak_b = max(peak_b, peak_bytes(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() - began_s > limit_s:
                os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.01)
    return Cost(
        time.perf_counter() - began_s,
        usage.ru_utime + usage.ru_stime,
        peak_b / 1e6,
        os.waitstatus_to_exitcode(status),
    )


def peak_bytes(pid: int) -> int:
    """Return the peak memory of a running process since it started its program."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def measure(folder: RunFolder, models: int, source: Path, limit_s: float) -> dict[str, Cost]:
    """Return the cost of each command on copies of an interrupted run."""
    log = folder.path.parent / f"output-{models}.txt"
    log.unlink(missing_ok=True)
    copies = {name: folder.path.parent / "copies" / name for name in ("attach", "resume")}
    for path in copies.values():
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(folder.path, path)
    complete = str(copies["resume"])
    plan = [
        "plan",
        WORKLOAD,
        "--profile",
        "tiny",
        "--models",
        str(models),
        "--nodes",
        str(-(-models // 8)),
    ]
    commands: dict[str, list[str]] = {
        "plan": [*plan, "--slots", "8"],
        "again": [*plan, "--slots", "8"],
        "attach": ["attach", str(copies["attach"])],
        "resume": ["resume", complete],
        "score": ["score", complete],
        "check": ["check", complete],
        "report": ["report", complete],
    }
    costs = {}
    for name, words in commands.items():
        costs[name] = cost_of(words, source, limit_s, log)
        print(f"{models:6} {name:8} {costs[name]}", flush=True)
    lines = len(log.read_text().splitlines())
    print(f"{models:6} terminal {lines} lines in {log}", flush=True)
    return costs


def browse(page: Path, picture: Path | None) -> None:
    """Print how long the report takes to open in a browser, and store a picture of it."""
    with Browser() as browser:
        tab = browser.open(page)
        print(
            f"{page.name}: {page.stat().st_size / 1e6:.2f} MB, opens in {tab.run(OPENED)} ms, "
            f"{tab.run('document.all.length')} elements, "
            f"{tab.run('document.querySelectorAll(`tr`).length')} table rows",
            flush=True,
        )
        for error in tab.errors:
            print(f"  {error}")
        if picture is not None:
            tab.picture(picture, whole=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", type=int, nargs="+", default=[64, 512, 4096])
    parser.add_argument("--folder", type=Path, help="Keep the runs here, and use those kept.")
    parser.add_argument("--source", type=Path, default=Path("src"), help="The code to measure.")
    parser.add_argument("--limit-s", type=float, default=600.0, help="Kill a command after this.")
    parser.add_argument("--picture", type=Path, help="Store a PNG of the last report here.")
    given = parser.parse_args()
    parent = given.folder or Path(tempfile.mkdtemp(prefix="vflops-thousands-"))
    for models in given.models:
        runs = parent / str(models)
        path = latest(runs)
        folder = make_run(runs, models) if path is None else RunFolder.open(path)
        measure(folder, models, given.source.resolve(), given.limit_s)
        report = runs / "copies" / "resume" / "report.html"
        if report.is_file():
            browse(report, given.picture)
    if given.folder is None:
        shutil.rmtree(parent)


if __name__ == "__main__":
    main()
