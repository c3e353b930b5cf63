"""Schedulers and allocations, from the variables that they set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.system_fakes import named, script, value
from vflops.machine.system.scheduler import scheduler_facts

SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "16",
    "SLURM_TASKS_PER_NODE": "8(x2)",
    "SLURM_MEM_PER_NODE": "1024",
    "SLURM_GPUS_ON_NODE": "8",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_JOB_NODELIST": "secretnode[01-02]",
    "SLURM_JOB_USER": "alice",
    "SLURM_JOB_ACCOUNT": "aliceproject",
}


@pytest.fixture(autouse=True)
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_outside_of_a_job_there_is_none() -> None:
    facts = scheduler_facts({"HOME": "/root"})
    assert value(facts, "scheduler") == "none"
    assert "SLURM_JOB_ID" in str(named(facts, "allocation").reason)


def test_a_slurm_allocation() -> None:
    facts = scheduler_facts(SLURM)
    assert value(facts, "scheduler") == "slurm"
    assert value(facts, "allocation nodes") == 2
    assert value(facts, "allocation tasks per node") == "8(x2)"
    assert value(facts, "allocation memory per node") == 2**30
    assert named(facts, "allocation cpus per task").reason == "SLURM_CPUS_PER_TASK is not set"


def test_hosts_and_people_of_an_allocation_are_not_recorded() -> None:
    recorded = " ".join(fact.model_dump_json() for fact in scheduler_facts(SLURM))
    assert "secretnode" not in recorded
    assert "alice" not in recorded


def test_the_version_is_asked_of_srun(tmp_path: Path) -> None:
    assert named(scheduler_facts(SLURM), "scheduler version").reason == "srun is not on PATH"
    script(tmp_path / "bin", "srun", 'echo "slurm 24.05.3"')
    assert value(scheduler_facts(SLURM), "scheduler version") == "slurm 24.05.3"


def test_a_pbs_allocation_counts_the_hosts_of_its_file(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("a\na\nb\nb\n")
    environ = {"PBS_JOBID": "12.headnode.example.org", "PBS_NODEFILE": str(tmp_path / "nodes")}
    facts = scheduler_facts(environ)
    assert value(facts, "scheduler") == "pbs"
    assert value(facts, "allocation nodes") == 2
    assert value(facts, "allocation job") == "12"


def test_a_pbs_node_file_that_is_gone_is_a_reason(tmp_path: Path) -> None:
    facts = scheduler_facts({"PBS_JOBID": "12", "PBS_NODEFILE": str(tmp_path / "gone")})
    assert named(facts, "allocation nodes").reason == "PBS_NODEFILE does not exist"


def test_an_lsf_allocation_counts_its_hosts() -> None:
    facts = scheduler_facts({"LSB_JOBID": "9", "LSB_MCPU_HOSTS": "batch 1 node1 42 node2 42"})
    assert (value(facts, "scheduler"), value(facts, "allocation nodes")) == ("lsf", 3)


def test_flux_inside_slurm_is_the_scheduler() -> None:
    facts = scheduler_facts({**SLURM, "FLUX_JOB_ID": "ƒ2Ab", "FLUX_JOB_NNODES": "1"})
    assert (value(facts, "scheduler"), value(facts, "allocation nodes")) == ("flux", 1)
