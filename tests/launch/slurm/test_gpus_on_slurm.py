"""Runs on nodes with GPUs: what SLURM is asked for, and what each rank gets.

Nothing computes on these GPUs, so the ranks train on CPUs: a trial of the layout. Eight GPUs make
two slots of four each, because the ranks share the cores of one machine.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support.ensemble_runs import ended, processes_of
from tests.support.markdown import commands, fences
from tests.support.paths import DOCS
from tests.support.slurm_bench import SlurmBench
from vflops.record.folder import RunFolder
from vflops.results.check.findings import Findings

TRIAL = ("train.device=cpu", "launch.gpus_per_rank=4", "micro.benchmarks=[]")
SHORT = (
    "synthetic.train=128",
    "synthetic.validation=60",
    "train.epochs=1",
    "train.warmup_epochs=0",
)

pytestmark = pytest.mark.cluster


@pytest.fixture(autouse=True)
def site(slurm: SlurmBench, tmp_path: Path) -> Iterator[Path]:
    """A site whose partition has GPUs; afterwards, nothing of its runs is left."""
    path = tmp_path / "site.toml"
    path.write_text('partition = "gpu"\n')
    yield path
    assert processes_of(tmp_path) == []
    assert "vflops-" not in slurm.run("squeue", "-h", "-o", "%j")


@dataclass(frozen=True)
class Given:
    """What a rank has."""

    job: int
    node: str
    gpus: str
    cores: str


def given_to_ranks(place: Path, process: subprocess.Popen[str], ranks: int) -> set[Given]:
    """What each rank has, once all of them run at the same time."""
    end_s = time.monotonic() + 240
    while time.monotonic() < end_s and process.poll() is None:
        found = [
            item
            for each in processes_of(place)
            if "vflops.train.rank" in each.info["cmdline"]
            if (item := _given(each)) is not None
        ]
        if len(found) == ranks:
            return set(found)
        time.sleep(0.05)
    process.kill()
    raise AssertionError(f"never {ranks} ranks at once: {process.communicate()}")


def _given(process: psutil.Process) -> Given | None:
    with suppress(psutil.Error, KeyError, StopIteration):
        words, variables = process.cmdline(), process.environ()
        job = int(words[words.index("vflops.train.rank") + 2])
        return Given(
            job,
            variables["SLURMD_NODENAME"],
            variables["CUDA_VISIBLE_DEVICES"],
            variables["SLURM_CPUS_PER_TASK"],
        )
    return None


def started(place: Path, *arguments: str, within: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    """A run, ``within`` the command of an allocation."""
    words = [word for setting in (*TRIAL, *SHORT) for word in ("--set", setting)]
    run = [sys.executable, "-m", "vflops", "run", "image-classification", "--profile", "tiny"]
    return subprocess.Popen(
        [*within, *run, "--on", "slurm", *words, *arguments],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def request_of(slurm: SlurmBench, folder: RunFolder) -> dict[str, str]:
    """What SLURM was asked for."""
    name = next(folder.path.glob("allocation-1.sh")).read_text()
    job = re.findall("--job-name=(\\S+)", name)[0]
    number = slurm.run("squeue", "-h", "--states=all", f"--name={job}", "-o", "%i").split()[0]
    text = slurm.run("scontrol", "show", "job", number)
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def test_the_number_of_nodes_is_all_that_a_run_needs(slurm: SlurmBench, tmp_path: Path) -> None:
    """A model a node and a rank a GPU, from the queue; the batch suits eight ranks."""
    slot = ("--set", "launch.gpus_per_rank=1", "--set", "train.batch=64")
    run = started(tmp_path, "--nodes", "2", *slot)
    found = given_to_ranks(tmp_path, run, 16)
    folder = ended(run, tmp_path, 0, 1)
    assert found == {Given(job, f"g{job}", "0,1,2,3,4,5,6,7", "32") for job in (1, 2)}
    asked = request_of(slurm, folder)
    assert (asked["NumNodes"], asked["NumCPUs"]) == ("2", "64")
    assert asked["TresPerNode"] == "gres:gpu:h100:8"


def test_two_models_of_each_node(slurm: SlurmBench, tmp_path: Path) -> None:
    run = started(tmp_path, "--nodes", "2", "--models", "4", "--ranks", "1")
    found = given_to_ranks(tmp_path, run, 4)
    folder = ended(run, tmp_path, 1)
    (failed,) = (
        item for item in Findings.read(folder.findings_file).failures if item.rule == "devices"
    )
    assert "a trial of the layout" in failed.evidence
    by_node = {node: [item for item in found if item.node == node] for node in ("g1", "g2")}
    for items in by_node.values():
        assert {item.gpus for item in items} == {"0,1,2,3", "4,5,6,7"}
        assert {item.cores for item in items} == {"16"}
    assert len({item.job for item in found}) == 4
    asked = request_of(slurm, folder)
    assert (asked["NumNodes"], asked["NumCPUs"]) == ("2", "64")
    assert asked["TresPerNode"] == "gres:gpu:h100:8"
    assert asked["MinMemoryNode"] == "475G"


def test_a_model_of_two_nodes(slurm: SlurmBench, tmp_path: Path) -> None:
    run = started(tmp_path, "--nodes", "2", "--ranks", "4")
    found = given_to_ranks(tmp_path, run, 4)
    assert found == {Given(1, node, "0,1,2,3,4,5,6,7", "32") for node in ("g1", "g2")}
    ended(run, tmp_path, 0, 1)


def test_an_exclusive_job_of_typed_gpus_has_all_cores(
    slurm: SlurmBench, tmp_path: Path, site: Path
) -> None:
    site.write_text('gpu_type = "h100"\ndirectives = ["--exclusive", "-p gpu", "--comment=a b"]\n')
    run = started(tmp_path, "--nodes", "1", "--models", "1", "--ranks", "1")
    (found,) = given_to_ranks(tmp_path, run, 1)
    folder = ended(run, tmp_path, 0, 1)
    assert (found.gpus, found.cores) == ("0,1,2,3", "32")
    asked = request_of(slurm, folder)
    assert (asked["TresPerNode"], asked["OverSubscribe"]) == ("gres:gpu:h100:4", "NO")


def test_an_allocation_is_used_whole(slurm: SlurmBench, tmp_path: Path) -> None:
    """Its GPUs and cores are those of the allocation, not those of the nodes; from a step of it."""
    step = ("srun", "--overlap", "-N1", "-n1")
    held = ("salloc", "-Q", "-N2", "-pgpu", "--gpus-per-node=4", "-n2", "-c8", *step)
    run = started(tmp_path, "--set", "launch.gpus_per_rank=2", within=held)
    found = given_to_ranks(tmp_path, run, 4)
    ended(run, tmp_path, 0, 1)
    assert found == {Given(job, f"g{job}", "0,1,2,3", "8") for job in (1, 2)}


def test_the_allocation_of_the_documentation(slurm: SlurmBench, tmp_path: Path) -> None:
    page = DOCS / "how-to" / "cluster.md"
    (words,) = (command.words for command in commands() if command.words[0] == "salloc")
    assert any("vflops run image-classification --on slurm" in each.text for each in fences(page))
    two = ["-N2" if word == "-N4" else word for word in words]
    run = started(tmp_path, within=(*two, "-Q", "-pgpu"))
    found = given_to_ranks(tmp_path, run, 4)
    ended(run, tmp_path, 0, 1)
    assert found == {Given(job, f"g{job}", "0,1,2,3,4,5,6,7", "32") for job in (1, 2)}


def test_a_run_of_another_type_where_the_site_requires_one(
    slurm: SlurmBench, tmp_path: Path, site: Path
) -> None:
    with pytest.raises(AssertionError, match="name the type of GPU"):
        slurm.run("sbatch", "-ptyped", "--gres=gpu:1", "--wrap=true")
    site.write_text('partition = "typed"\ngpu_type = "a100"\n')
    run = started(tmp_path, "--nodes", "1", "--models", "1", "--ranks", "1")
    (found,) = given_to_ranks(tmp_path, run, 1)
    folder = ended(run, tmp_path, 0, 1)
    assert (found.node, found.gpus) == ("g4", "0,1,2,3")
    assert request_of(slurm, folder)["TresPerNode"] == "gres:gpu:a100:4"


def refused(place: Path, *arguments: str, within: tuple[str, ...] = ()) -> str:
    """What a run says that is refused before its folder exists."""
    command = [sys.executable, "-m", "vflops", "run", "image-classification", "--on", "slurm"]
    done = subprocess.run(
        [*within, *command, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert not (place / "runs").exists()
    return " ".join(done.stderr.split())


def test_a_wrong_type_of_gpu_is_refused(slurm: SlurmBench, tmp_path: Path, site: Path) -> None:
    site.write_text('partition = "gpu"\ngpu_type = "H100"\n')
    said = refused(tmp_path, "--nodes", "2")
    words = "SLURM lists only GPUs of type a100 or h100 in the partition gpu"
    assert f"gpu_type is H100 in site.toml, but {words}" in said
    assert "set gpu_type to a100 or h100" in said


def test_an_allocation_without_the_gpus_of_its_nodes_is_refused(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    said = refused(tmp_path, within=("salloc", "-Q", "-N2", "-pgpu"))
    assert "has none of the 8 GPUs of its nodes" in said
    assert "salloc --gpus-per-node=8" in said


def test_an_allocation_with_too_few_cores_is_refused(slurm: SlurmBench, tmp_path: Path) -> None:
    held = ("salloc", "-Q", "-N1", "-pgpu", "--gpus-per-node=8")
    run = started(tmp_path, "--set", "launch.gpus_per_rank=1", within=held)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 2
    assert "g1 offers 1 core to 8 ranks" in said
    assert "salloc --exclusive" in said
    assert not (tmp_path / "runs").exists()
