"""Run folders made by hand, and the command line as a user starts it."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from tests.support import (
    slurm_bench,
    triton_kernels,  # noqa: F401  (first: it decides whether Triton compiles or interprets)
)
from tests.support.paths import ROOT
from tests.support.programs import needs_process, run_here
from tests.support.sample_parts import MEASUREMENTS, Vflops, write_system
from tests.support.stored_machines import MACHINES, Machine, write_machine
from tests.support.trained_runs import HandmadeRun, two_seeds
from vflops.config.profiles import tiny
from vflops.publish.pages import chart_style
from vflops.record.files import atomic
from vflops.record.folder import RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.testing.conventions import sample_graph

# Programs that tests start import tests.support too, wherever they run.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
# A shell that starts the tests in the background has them ignore SIGINT, which some of them send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A loaded machine is slow; no test is about time.
hypothesis.settings.register_profile("vflops", deadline=None)
hypothesis.settings.load_profile("vflops")


# Importing all tests makes millions of objects that live to the end: the collector need not look
# for garbage among them, neither meanwhile nor in every later collection.
gc.disable()


def pytest_configure(config: pytest.Config) -> None:
    """Have each worker import the tests from another folder on.

    pytest compiles tests once and keeps the byte code: workers in step would all compile all.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1 and [Path(word).resolve() for word in config.args] == [ROOT / "tests"]:
        folders = sorted(
            path for path in (ROOT / "tests").iterdir() if any(path.rglob("test_*.py"))
        )
        first = int(worker) * len(folders) // workers
        config.args[:] = map(str, (*folders[first:], *folders[:first]))


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Run the tests that wait for a scheduler first, beside others that compute.

    They are the longest: at the end, one process would run them while the others have nothing to
    do. Together they also share one SLURM. All workers have one order, from which pytest brings
    together the tests that share a fixture.
    """
    items.sort(key=lambda item: item.path)
    yield
    items.sort(key=lambda item: "slurm" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what the tests' modules hold."""
    gc.freeze()
    gc.enable()


@pytest.fixture
def run_folder(tmp_path: Path) -> RunFolder:
    """A complete run that measured a few ceilings and counted one model."""
    return complete_run(tmp_path / "runs", write_system)


@pytest.fixture
def stored_run(tmp_path: Path, described: SystemRecord) -> RunFolder:
    """The same run, on each of the stored machines."""
    return complete_run(tmp_path / "runs", lambda folder: described.write(folder.system_file))


def complete_run(root: Path, write: Callable[[RunFolder], object]) -> RunFolder:
    """Write a run whose system ``write`` describes."""
    folder = RunFolder.create(root, "suite", tiny())
    write(folder)
    graph = sample_graph(batch=4)
    atomic.make_folder(folder.path / "graphs")
    graph.write(folder.graph_file(graph.model))
    with folder.start_attempt(job=0) as events:
        events.write("start", workload="suite")
        system = SystemRecord.read(folder.system_file)
        events.write("described", sha256=system.digest())
        events.write("counted", model=graph.model, batch=graph.batch, sha256=graph.digest())
        events.write("plan", measurements=[item.key for item in MEASUREMENTS])
        for item in MEASUREMENTS:
            events.write("measurement", **item.model_dump(mode="json"))
        events.write("load", others_share=0.02)
        events.write("end")
    return folder


@pytest.fixture
def handmade_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandmadeRun:
    """A new run folder whose trainings a test writes itself."""
    run = HandmadeRun(tmp_path / "runs", monkeypatch)
    write_system(run.folder)
    return run


@pytest.fixture
def trained_folder(handmade_run: HandmadeRun) -> RunFolder:
    """A complete run that trained two seeds to the target, with power, traffic and kernels."""
    return two_seeds(handmade_run, MEASUREMENTS)


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One cache and one record of own runs for all tests, apart from those of the user."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["VFLOPS_CACHE"] = str(root / "vflops-cache")
    os.environ["XDG_STATE_HOME"] = str(root / "state")
    os.environ["OMP_WAIT_POLICY"] = "passive"  # trainings of several tests share the cores


@pytest.fixture(scope="session", autouse=True)
def checked_charts() -> Iterator[None]:
    """Has altair check every chart that a test draws in its own process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chart_style, "specification_of", lambda chart: chart.to_dict())
        yield


@pytest.fixture(scope="session")
def stored_machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Machine]:
    """Returns a stored machine by its name; its files are written once."""
    return cache(lambda name: write_machine(name, tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session", params=MACHINES)
def machine(request: pytest.FixtureRequest, stored_machine: Callable[[str], Machine]) -> Machine:
    """Each of the stored machines."""
    return stored_machine(request.param)


@pytest.fixture(scope="session")
def described(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> SystemRecord:
    """The description of each stored machine."""
    return machine.gather(tmp_path_factory.mktemp("run"))


@pytest.fixture
def vflops_alone(tmp_path: Path) -> Vflops:
    """Runs the command in an empty folder, in a Python of its own, as a user does.

    ``make test`` allows one thread, a user's shell all of them.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "vflops", *map(str, arguments)],
            cwd=tmp_path,
            env={**inherited, "COLUMNS": "100", **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run


@pytest.fixture
def vflops(vflops_alone: Vflops, tmp_path: Path) -> Vflops:
    """Runs the command in an empty folder, in this process if the variables allow that."""

    def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "COLUMNS": "100", **environment}
        if needs_process(variables):
            return vflops_alone(*arguments, **environment)
        return run_here([str(argument) for argument in arguments], tmp_path, variables)

    return run


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs that a few megabytes fill."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


@pytest.fixture(scope="session")
def slurm_nodes() -> Iterator[slurm_bench.SlurmBench]:
    """A real SLURM, started once for all tests."""
    with slurm_bench.started() as bench:
        yield bench


@pytest.fixture
def slurm(
    slurm_nodes: slurm_bench.SlurmBench, monkeypatch: pytest.MonkeyPatch
) -> slurm_bench.SlurmBench:
    """A real SLURM of four idle nodes that this process talks to."""
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)  # the tests may run in a job themselves
    for name, value in slurm_nodes.environment.items():
        monkeypatch.setenv(name, value)
    slurm_nodes.reset()
    return slurm_nodes
