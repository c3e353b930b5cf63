"""Runs on four hosts with addresses of their own, joined by mpiexec and by ssh."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import vflops
from tests.support import short_of_memory
from tests.support.automl_runs import SMALL, results
from tests.support.joining_hosts import NAMES, VFLOPS, JoiningHosts, joining_hosts
from tests.support.markdown import fences
from tests.support.paths import DOCS
from vflops.record.folder import RunFolder
from vflops.record.formats.job_events import JobLost
from vflops.record.formats.node import NodeRecord, node_files
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.workloads.automl.search_events import CandidateFailed

pytestmark = pytest.mark.cluster

_SMALL = ("run", "image-classification", "--profile", "tiny", "--set", "train.warmup_epochs=0")
_LIMIT_S = 240


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[JoiningHosts]:
    with joining_hosts(tmp_path) as bench:
        yield bench


def lead(hosts: JoiningHosts, *words: object, nodes: int) -> subprocess.Popen[str]:
    """Start a run on the first host that waits for nodes."""
    out = ("--out", hosts.folder / "runs")
    return hosts.vflops("h1", *_SMALL, "--on", "join", "--nodes", nodes, *out, *words)


def wait_for(is_so: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < end_s, what
        time.sleep(0.2)


def folder_of(hosts: JoiningHosts) -> RunFolder:
    wait_for(lambda: list(hosts.folder.glob("runs/*/join/controller.json")), "no run")
    (path,) = hosts.folder.glob("runs/*/run.json")
    return RunFolder.open(path.parent)


def end_of(process: subprocess.Popen[str]) -> tuple[int, str]:
    output = process.communicate(timeout=_LIMIT_S)[0]
    return process.returncode, output


def trained_on(folder: RunFolder, job: int) -> list[str]:
    """Return the nodes of the newest attempt at a job."""
    attempt = folder.logged_attempts(job)[-1]
    return [NodeRecord.read(path).name for path in node_files(attempt) if path.suffix == ".json"]


def documented_script() -> str:
    """Return the script of docs/how-to/cluster.md, with a small run of two models of two ranks."""
    (script,) = (
        fence.text
        for fence in fences(DOCS / "how-to" / "cluster.md")
        if "mpiexec" in fence.text and "--on join" in fence.text
    )
    small = (
        *("--profile tiny", "--models 2 --ranks 2", "--set train.warmup_epochs=0"),
        *("--set launch.ranks_per_node=1", "--set train.epochs=1", "--set micro.budget_s=2"),
    )
    shorter = script.replace("--out runs &", f"--out runs {' '.join(small)} > run.log 2>&1 &")
    assert shorter != script
    return f"{shorter}\n"


def test_the_documented_mpiexec_starts_two_models_over_two_hosts_each(
    hosts: JoiningHosts,
) -> None:
    """Variables say what a site has set up: the list of hosts, ssh and the environment."""
    hosts.serve_ssh()
    (hosts.folder / "hostfile").write_text(
        "".join(f"{address} slots=2\n" for address in hosts.address.values())
    )
    sent = ["PATH", "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS", "OMP_WAIT_POLICY"]
    sent += ["PYTHONPATH"] if "PYTHONPATH" in os.environ else []
    site = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_orte_default_hostfile": str(hosts.folder / "hostfile"),
        "OMPI_MCA_plm_rsh_agent": " ".join(hosts.ssh_client),
        "OMPI_MCA_oob_tcp_if_include": "eth0",
        "OMPI_MCA_mca_base_env_list": ";".join(sent),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    script = hosts.start("h1", "bash", "-c", documented_script(), **site)
    code, said = end_of(script)
    output = (hosts.folder / "run.log").read_text()
    assert code == 0, f"{output}\n{said}"
    for name in NAMES:
        assert f"{name} has joined" in output and f"as {name}; waiting for its jobs" in said
    folder = folder_of(hosts)
    placed = [trained_on(folder, job) for job in (1, 2)]
    assert sorted(map(len, placed)) == [2, 2] and {*placed[0], *placed[1]} == {*NAMES}
    assert len(list(folder.path.glob("nodes/*.json"))) == 4
    assert len(list(folder.path.glob("links/*.json"))) == 1
    failed = {
        finding["rule"]
        for finding in json.loads(folder.findings_file.read_text())["findings"]
        if finding["verdict"] == "fail"
    }
    assert failed <= {"quiet", "stolen"}, "the machine that tests is not quiet"
    (scored,) = score(Contents(folder)).ensembles
    assert scored.jobs == (1, 2) and not scored.partial
    assert scored.vflops is not None and scored.vflops > 0


def test_a_host_that_dies_is_named_and_its_jobs_run_elsewhere(hosts: JoiningHosts) -> None:
    hosts.serve_ssh()
    control = lead(
        hosts,
        *("--models", 3, "--set", "micro.benchmarks=[]"),
        *("--set", "synthetic.train=4096", "--set", "train.epochs=3"),
        nodes=3,
    )
    folder = folder_of(hosts)
    start = f"GLOO_SOCKET_IFNAME=eth0 exec {' '.join(VFLOPS)} join {folder.path}"
    joined = {name: hosts.start("h1", *hosts.ssh(name), start) for name in NAMES[:3]}
    wait_for(lambda: all(folder.logged_attempts(job) for job in (1, 2, 3)), "nothing starts")
    (crashed,) = [job for job in (1, 2, 3) if trained_on(folder, job) == ["h3"]]
    hosts.crash("h3")
    code, output = end_of(control)
    assert code in (0, 1), output
    assert "h3 is lost: no sign of life" in output
    assert folder.ended(crashed) and trained_on(folder, crashed) in (["h1"], ["h2"])
    losses = [event.payload(JobLost) for event in folder.history(0).events("job-lost")]
    assert [(loss.job, loss.suspects) for loss in losses] == [(crashed, ("h3",))]
    for name in NAMES[:2]:
        assert end_of(joined[name])[0] == 0


def test_nodes_that_cannot_take_part_are_refused(hosts: JoiningHosts) -> None:
    control = lead(
        hosts, "--models", 2, "--set", "micro.benchmarks=[]", "--set", "train.epochs=1", nodes=2
    )
    folder = folder_of(hosts)
    first = hosts.vflops("h2", "join", folder.path)
    wait_for(lambda: list(folder.path.glob("join/h2-*.orders.json")), "h2 does not join")

    code, said = end_of(hosts.vflops("h2", "join", folder.path))
    assert code == 2 and "h2 has joined already" in said and "once on every node" in said

    other = shutil.copytree(Path(vflops.__file__).parent, hosts.folder / "other" / "vflops")
    with (other / "units.py").open("a") as file:
        file.write("# another version\n")
    code, said = end_of(hosts.vflops("h3", "join", folder.path, PYTHONPATH=str(other.parent)))
    assert code == 2 and "another vflops than the controller" in said

    if shutil.which("faketime") is not None:
        late = ("faketime", "-f", "+60s")
        code, said = end_of(hosts.start("h3", *late, *VFLOPS, "join", folder.path))
        assert code == 2 and "the clock of h3 differs by +60" in said

    hide = f'mount -t tmpfs none "{hosts.folder / "runs"}" && exec "$@"'
    unseen = ("unshare", "--mount", "sh", "-c", hide, "sh")
    began_s = time.monotonic()
    code, said = end_of(hosts.start("h4", *unseen, *VFLOPS, "join", folder.path))
    assert code == 2 and time.monotonic() - began_s < 30
    assert f"the node does not see the run folder {folder.path}" in said

    second = hosts.vflops("h4", "join", folder.path)
    code, output = end_of(control)
    assert code == 0, output
    assert end_of(first)[0] == end_of(second)[0] == 0
    assert sorted(trained_on(folder, 1) + trained_on(folder, 2)) == ["h2", "h4"]


def test_nodes_leave_and_return_and_another_controller_takes_over(hosts: JoiningHosts) -> None:
    control = lead(
        hosts,
        *("--models", 2, "--set", "micro.benchmarks=[]", "--set", "bagging.attempts=5"),
        *("--set", "synthetic.train=4096", "--set", "train.epochs=3"),
        nodes=2,
    )
    folder = folder_of(hosts)
    stays, leaves = (hosts.vflops(name, "join", folder.path) for name in ("h2", "h3"))
    wait_for(lambda: all(folder.logged_attempts(job) for job in (1, 2)), "nothing starts")
    (moved,) = [job for job in (1, 2) if trained_on(folder, job) == ["h3"]]
    (node,) = folder.path.glob("join/h3-*.node.json")
    subprocess.run(["kill", str(json.loads(node.read_text())["pid"])], check=True)
    code, said = end_of(leaves)
    assert code == 130 and "h3 left" in said
    control.kill()  # with nobody left to place the job
    control.wait()
    returns = hosts.vflops("h3", "join", folder.path)
    wait_for(lambda: len(list(folder.path.glob("join/h3-*.node.json"))) == 2, "no return")
    code, output = end_of(hosts.vflops("h4", "join", "--lead", folder.path))
    assert code in (0, 1), output
    assert all(folder.ended(job) for job in (1, 2))
    assert trained_on(folder, moved) in (["h2"], ["h3"], ["h4"])
    assert end_of(stays)[0] == end_of(returns)[0] == 0
    done = subprocess.run(
        [sys.executable, "-m", "vflops", "check", str(folder.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr


def test_a_worker_over_two_hosts_that_runs_out_of_memory_on_one_goes_on(
    hosts: JoiningHosts,
) -> None:
    short = str(Path(short_of_memory.__path__[0]))
    words = ["run", "automl", "--profile", "tiny", "--workers", 1, "--ranks", 2, "--on", "join"]
    words += ["--nodes", 2, "--out", hosts.folder / "runs"]
    small = ("launch.ranks_per_node=1", "bagging.attempts=1", "search.candidates=3", *SMALL)
    words += [word for setting in small for word in ("--set", setting)]
    control = hosts.vflops("h1", *words)
    folder = folder_of(hosts)
    planted = {"PYTHONPATH": short, "SHORT_OF_MEMORY": "r00001-w00000"}
    joined = [hosts.vflops(name, "join", folder.path, **planted) for name in ("h2", "h3")]
    code, output = end_of(control)
    assert code in (0, 1), output
    assert [end_of(node)[0] for node in joined] == [0, 0]
    assert sorted(results(folder)) == ["r00000-w00000", "r00002-w00000"]
    (failed,) = [e.payload(CandidateFailed) for e in folder.history().events("candidate-failed")]
    assert failed.out_of_memory and failed.message.startswith("rank 1: ")
    (lost,) = [event.payload(JobLost) for event in folder.history(0).events("job-lost")]
    assert lost.excused and sorted(trained_on(folder, 1)) == ["h2", "h3"]
    # Both agents ended because a rank of one of them wanted a restart.
    assert all(
        "r00001-w00000 cannot be trained" in path.read_text()
        for path in folder.path.glob("jobs/1/agent*.log")
    )
