"""A preflight of this machine, and the parts that nodes measure with."""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.host_name import needs_host_name
from tests.support.sample_parts import Vflops
from vflops.launch.agent_report import AgentReport
from vflops.launch.job_script import PREFLIGHT, step_log, steps_folder
from vflops.launch.local.local_launcher import LocalLauncher
from vflops.launch.node_check.findings import Order, Preflight
from vflops.launch.node_check.gpu_health import gpus
from vflops.launch.node_check.preflight_run import Gatherer
from vflops.launch.node_check.verdicts import judge
from vflops.launch.scheduler import JobStatus
from vflops.launch.site import SiteSettings
from vflops.launch.sizing import RankShare


def test_this_machine_is_healthy(vflops: Vflops, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('local_path = "$HERE/nowhere"\n')
    done = vflops("preflight", "--json", HERE=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    result = Preflight.parse(json.loads(done.stdout), tmp_path)
    assert result.nodes == (socket.gethostname(),)
    problems = [finding for finding in result.findings if finding.verdict != "ok"]
    assert [finding.what for finding in problems] == ["local space"]
    assert f"{tmp_path}/nowhere: No such file" in problems[0].value
    (folder,) = (tmp_path / "runs").iterdir()
    assert Preflight.read(folder / "preflight.json") == result
    assert not list(folder.glob("*.bin"))


def test_the_output_shows_the_findings_and_the_next_step(vflops: Vflops, tmp_path: Path) -> None:
    done = vflops("preflight", "--out", tmp_path / "shared")
    assert done.returncode == 0
    assert "shared read" in done.stdout
    assert "next: vflops run" in done.stderr
    assert list((tmp_path / "shared").glob("preflight-*/preflight.json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "2"), "this machine is one node"),
        (("--on", "slrum"), "did you mean slurm?"),
        (("--on", "slurm", "--nodes", "2"), "no sbatch here"),
        (("--out", "file"), "cannot write"),
    ],
)
def test_wrong_use_is_refused(
    vflops: Vflops, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    (tmp_path / "file").touch()
    done = vflops("preflight", *arguments, PATH="/nowhere")
    assert done.returncode == 2
    assert words in done.stderr


@needs_host_name
def test_two_probes_measure_together_and_end(tmp_path: Path) -> None:
    order = Order(token="t", nodes=2, read_bytes=1 << 20, limit_s=40)
    order.write(tmp_path / "order.json")
    checking = LocalLauncher.checking(tmp_path, SiteSettings(), 2, RankShare())
    facts = Gatherer(tmp_path, order, lambda text: None).facts(checking)
    assert set(facts.results) == {0, 1}, step_log(tmp_path / PREFLIGHT, 0).read_text()
    assert facts.results[0].clock is None
    reading = facts.results[1].clock
    assert reading is not None and reading.offset_s is not None
    assert abs(reading.offset_s) <= (reading.uncertainty_s or 0)  # it is the same clock
    assert all(result.read_bandwidth is not None for result in facts.results.values())
    ((task, result),) = facts.links
    assert (task.nodes, result.fault) == ((0, 1), None)
    (found,) = (finding for finding in judge(facts) if finding.what == "link")
    assert (found.verdict, found.value.split()[-2:]) == ("ok", ["by", "gloo"])


def test_a_probe_that_dies_is_reported(tmp_path: Path) -> None:
    Order(token="t", nodes=1, read_bytes=1, limit_s=5).write(tmp_path / "order.json")
    order = Order.read(tmp_path / "order.json")
    checking = nullcontext(lambda: JobStatus("ended", ("here",), None))
    facts = Gatherer(tmp_path, order, lambda text: None).facts(checking)
    assert (facts.health, facts.names) == ({}, {0: "here"})
    assert facts.faults[0] == "no answer within 5 s"
    script = tmp_path / PREFLIGHT
    steps_folder(script).mkdir()
    step_log(script, 1).write_text("srun: error: Task launch failed on node here\n")
    facts = Gatherer(tmp_path, order, lambda text: None).facts(checking)
    assert facts.faults[0] == "no answer within 5 s", "that is the step of another node"
    step_log(script, 0).write_text("a word\nsrun: error: Unable to create step\n")
    facts = Gatherer(tmp_path, order, lambda text: None).facts(checking)
    assert facts.faults[0] == "no answer within 5 s (srun: error: Unable to create step)"
    fault = AgentReport(node="n1", job=0, outcome="failed", message="a full disk")
    with step_log(script, 0).open("a") as log:
        log.write(fault.model_dump_json() + "\n")
    facts = Gatherer(tmp_path, order, lambda text: None).facts(checking)
    assert facts.faults[0] == "n1 says: a full disk"


class FakeNvml(SimpleNamespace):
    """Two GPUs: the first is faulty, the second supports few queries."""

    NVMLError = RuntimeError
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1

    def __getattr__(self, name: str) -> Any:
        answers = {
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetName": b"H200",
            "nvmlDeviceGetCurrentClocksThrottleReasons": 0x1 | 0x40,
            "nvmlDeviceGetComputeRunningProcesses": [SimpleNamespace(pid=7)],
            "nvmlDeviceGetRemappedRows": (1, 1, 1, 0),
        }

        def answer(*arguments: Any) -> Any:
            if name == "nvmlDeviceGetHandleByIndex":
                return arguments[0]
            if arguments[:1] == (1,) and name != "nvmlDeviceGetName":
                raise RuntimeError("not supported")
            if name == "nvmlDeviceGetTotalEccErrors":
                return {0: 12, 1: 3}[arguments[1]]
            return answers.get(name)

        return answer


def test_faulty_gpus_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (faulty, limited), reason = gpus()
    assert reason is None
    assert (faulty.uncorrected, faulty.corrected, faulty.processes) == (3, 12, (7,))
    assert faulty.throttled == ("hardware thermal slowdown",)  # idleness does not count
    assert faulty.remapping == "waits for a reset"
    assert (limited.name, limited.uncorrected, limited.throttled) == ("H200", None, ())


def test_only_the_gpus_of_the_job_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    visible, _ = gpus()
    assert [gpu.uncorrected for gpu in visible] == [None]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "NoDevFiles")
    assert gpus() == ((), "the job has none of the node's GPUs")


def test_without_nvml_there_are_no_gpus_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr("vflops.machine.nvml.driver_present", lambda root: True)
    visible, reason = gpus()
    assert visible == ()
    assert "pynvml is not installed" in (reason or "")
    monkeypatch.setattr("vflops.machine.nvml.driver_present", lambda root: False)
    assert gpus() == ((), "no NVIDIA accelerator on this machine")


def test_the_probe_does_not_import_torch() -> None:
    code = "import vflops.launch.node_check.node_probe, sys; sys.exit('torch' in sys.modules)"
    assert os.spawnl(os.P_WAIT, sys.executable, sys.executable, "-c", code) == 0
