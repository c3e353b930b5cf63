"""Preflights of a real SLURM of four nodes, healthy and with faults."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.slurm_bench import NODES, SlurmBench
from vflops.launch.node_check.findings import Preflight

COMMAND = [sys.executable, "-m", "vflops", "preflight", "--on", "slurm", "--json"]


def preflight(place: Path, *arguments: str, start: tuple[str, ...] = ()) -> tuple[Preflight, int]:
    done = subprocess.run(
        [*start, *COMMAND, *arguments],
        cwd=place,
        env={**os.environ, "OMP_WAIT_POLICY": "passive"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    logs = "".join(path.read_text() for path in place.glob("runs/*/preflight.steps/*"))
    assert done.stdout.startswith("{"), done.stdout + done.stderr + logs
    return Preflight.parse(json.loads(done.stdout), place), done.returncode


def faulty_node(place: Path, node: str, fault: str) -> None:
    """Write a site whose Python has a fault on one of the nodes, given as bash code."""
    python = place / "python"
    python.write_text(
        f'#!/bin/bash\nset -- {shlex.quote(sys.executable)} "$@"\n'
        f'[ "$SLURMD_NODENAME" = {node} ] && {{\n{fault}\n}}\nexec "$@"\n'
    )
    python.chmod(0o755)
    (place / "site.toml").write_text(f'python = "{python}"\nlocal_path = "{place}"\n')


def verdicts(result: Preflight, what: str) -> dict[str, str]:
    return {finding.node: finding.verdict for finding in result.findings if finding.what == what}


def test_four_nodes_are_healthy(slurm: SlurmBench, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(f'local_path = "{tmp_path}"\n')
    result, code = preflight(tmp_path, "--nodes", "4")
    assert (code, result.failed) == (0, ())
    assert result.nodes == NODES
    for what in ("answer", "shared folder", "versions", "shared read", "gpu", "local space"):
        assert list(verdicts(result, what)) == list(NODES)
    assert list(verdicts(result, "clock")) == ["n2", "n3", "n4"]  # relative to the first
    assert set(verdicts(result, "link")) == {"n1 – n2", "n2 – n3", "n3 – n4", "n4 – n1"}
    assert list(verdicts(result, "all-reduce")) == ["all nodes"]
    (folder,) = (tmp_path / "runs").iterdir()
    assert (folder / "preflight.sh").is_file()
    assert not list(folder.glob("*.bin"))
    slurm.wait(lambda: slurm.run("squeue", "-h") == "", "empty queue")


def test_another_version_and_a_dead_link_name_their_nodes(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "torch-1.0.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n")
    fault = f"export PYTHONPATH={other.parent} GLOO_SOCKET_IFNAME=nosuch0"
    faulty_node(tmp_path, "n3", fault)
    result, code = preflight(tmp_path, "--nodes", "4", "--limit", "40")
    assert code == 1
    assert verdicts(result, "versions") == {"n1": "ok", "n2": "ok", "n3": "fail", "n4": "ok"}
    (odd,) = [finding for finding in result.failed if finding.what == "versions"]
    assert odd.value.startswith("torch 1.0, not 2.")
    dead = {finding.node for finding in result.failed if finding.what == "link"}
    assert dead == {"n2 – n3", "n3 – n4"}
    whole = {node for node, verdict in verdicts(result, "link").items() if verdict != "fail"}
    assert whole == {"n1 – n2", "n4 – n1"}


def test_in_an_allocation_a_node_with_another_folder_is_named(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    (tmp_path / "runs").mkdir()
    hide = f'set -- unshare -m bash -c \'mount -t tmpfs none {tmp_path}/runs && exec "$@"\' - "$@"'
    faulty_node(tmp_path, "n2", hide)
    result, code = preflight(tmp_path, start=("salloc", "--quiet", "--nodes=2"))
    assert code == 1
    assert result.nodes == ("n1", "n2")
    (failed,) = result.failed
    assert (failed.node, failed.what) == ("n2", "answer")
    assert "is not the folder" in failed.value
    assert verdicts(result, "shared read") == {"n1": "ok"}
    assert "link" not in {finding.what for finding in result.findings}


def test_a_drained_and_a_dead_node_are_named(slurm: SlurmBench, tmp_path: Path) -> None:
    slurm.drain("n2")
    slurm.kill_node("n4")
    result, code = preflight(tmp_path, "--nodes", "4", "--limit", "10")
    assert code == 1
    failed = {(finding.node, finding.what): finding.value for finding in result.failed}
    assert set(failed) == {("n2", "scheduler"), ("n4", "answer")}
    assert failed["n2", "scheduler"] == "does not give it to jobs: drained: test"
    assert "no answer within 10 s" in failed["n4", "answer"]
    assert verdicts(result, "link") == {"n1 – n3": "ok"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "the number of nodes to check is missing"),
        (("--nodes", "9"), "SLURM has 4 nodes that a job could get, but 9 are requested"),
        (("--nodes", "0"), "--nodes 0"),
    ],
)
def test_wrong_numbers_of_nodes_are_refused(
    slurm: SlurmBench, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    done = subprocess.run(
        [*COMMAND, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "runs").exists()


_NVML = """\
import os

NVMLError = RuntimeError
NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
nvmlInit = nvmlShutdown = lambda: None
nvmlDeviceGetCount = lambda: 8
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetName = lambda gpu: "A100"
nvmlDeviceGetTotalEccErrors = lambda gpu, kind, counter: 0
nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: 0
nvmlDeviceGetComputeRunningProcesses = lambda gpu: ()
nvmlDeviceGetRemappedRows = lambda gpu: (0, 0, 0, 0)
"""
"""A module pynvml of a node with eight healthy GPUs."""


def test_a_node_with_all_its_gpus_is_healthy(slurm: SlurmBench, tmp_path: Path) -> None:
    """It gets what a run gets, where a site requires the type of a GPU."""
    (tmp_path / "nvml").mkdir()
    (tmp_path / "nvml" / "pynvml.py").write_text(_NVML)
    path = os.pathsep.join((str(tmp_path / "nvml"), os.environ["PYTHONPATH"]))
    site = 'partition = "nowhere"\ngpu_type = "a100"\ndirectives = ["--partition=typed"]\n'
    (tmp_path / "site.toml").write_text(f'{site}[environment]\nPYTHONPATH = "{path}"\n')
    result, code = preflight(tmp_path, "--nodes", "1")
    assert (code, result.failed) == (0, ()), result
    assert result.nodes == ("g4",)
    gpus = [finding.value for finding in result.findings if finding.what == "gpu"]
    assert len(gpus) == 8 and all("healthy" in value for value in gpus)
    script = next(tmp_path.glob("runs/*/preflight.sh")).read_text()
    for option in ("--gres=gpu:a100:8", "--cpus-per-task=32", "--mem=486400M"):
        assert f"#SBATCH {option}\n" in script


def test_gpus_that_slurm_lists_and_a_node_does_not_see_fail(
    slurm: SlurmBench, tmp_path: Path
) -> None:
    (tmp_path / "site.toml").write_text('partition = "gpu"\n')
    result, code = preflight(tmp_path, "--nodes", "1")
    assert (code, verdicts(result, "gpu")) == (1, {"g1": "fail"})
    (found,) = (finding for finding in result.findings if finding.what == "gpu")
    assert found.value.startswith("sees 0 of the 8 GPUs that the scheduler gives: ")
