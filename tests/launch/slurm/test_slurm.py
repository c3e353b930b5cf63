"""SLURM's scheduler on a real cluster of four nodes, with the faults of a real site."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ensemble_runs import started
from tests.support.paths import ROOT
from tests.support.slurm_bench import GPU_NODES, SlurmBench
from vflops.errors import UsageError
from vflops.launch.job_script import Request, Step
from vflops.launch.scheduler import JobStatus
from vflops.launch.site import SiteSettings
from vflops.launch.slurm.sbatch_script import allocation_script, job_script
from vflops.launch.slurm.slurm_nodes import expand_nodes
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler
from vflops.launch.slurm.submissions import read_intents, read_submission
from vflops.launch.slurm.time_limits import default_limit_s
from vflops.record.folder import RunFolder

# The arguments are -P -m vflops.launch.agent RUN JOB.
_STAND_IN = """\
#!/bin/bash
mark="$4/job-$5.node-$SLURM_NODEID"
trap 'date +%s.%N > "$mark.stopped"; exit 0' TERM
size="$SLURM_NNODES $SLURM_CPUS_PER_TASK ${SLURM_GPUS_ON_NODE:-0}"
echo "$(date +%s.%N) $SLURMD_NODENAME $size $VFLOPS_LOCAL_PATH" >> "$mark.began"
until [ -e "$4/go" ]; do sleep 0.05; done
date +%s.%N > "$mark.ended"
exit "$(cat "$4/code-$5" 2>/dev/null || echo 0)"
"""


class StandInRun:
    """A run folder with a fake agent that waits for ``go`` and then ends with its code."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "a run"
        self.path.mkdir()
        self.agent = self.path / "agent.sh"
        self.agent.write_text(_STAND_IN)
        self.agent.chmod(0o755)

    def request(
        self,
        job: int,
        nodes: int = 1,
        *,
        tasks: int = 1,
        cores: int = 1,
        gpus: int = 0,
        **site: object,
    ) -> Request:
        settings = SiteSettings.model_validate({"python": str(self.agent), **site})
        script, output = self.path / f"job-{job}.sh", self.path / f"job-{job}.out"
        request = Request(f"vf-{job}", script, nodes, tasks, cores, gpus, output, settings)
        script.write_text(job_script(request, self.path, job))
        return request

    def go(self) -> None:
        (self.path / "go").touch()

    def began(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.path.glob("*.began")}


@pytest.fixture
def run(tmp_path: Path) -> StandInRun:
    return StandInRun(tmp_path)


def seen_when(
    scheduler: SlurmScheduler, job: str, until: Callable[[JobStatus], bool], limit_s: float = 30
) -> JobStatus:
    end_s = time.monotonic() + limit_s
    while not until(seen := scheduler.look([job])[job]):
        assert time.monotonic() < end_s, f"still {seen}"
        time.sleep(0.1)
    return seen


def running(seen: JobStatus) -> bool:
    return seen.state == "running"


def ended(seen: JobStatus) -> bool:
    return seen.state == "ended"


def test_jobs_wait_run_and_end_with_the_schedulers_reasons(
    slurm: SlurmBench, run: StandInRun
) -> None:
    scheduler = SlurmScheduler()
    # Each takes two whole nodes: two run, two wait.
    ids = [scheduler.submit(run.request(job, nodes=2, cores=2)) for job in range(4)]
    (run.path / "code-1").write_text("3")
    seen_when(scheduler, ids[1], running)
    first = scheduler.look(ids)
    assert [first[job].state for job in ids] == ["running", "running", "waiting", "waiting"]
    assert {node for job in ids[:2] for node in first[job].nodes} == {"n1", "n2", "n3", "n4"}
    assert first[ids[0]].reason is None
    assert (first[ids[3]].reason or "").startswith("PENDING")

    scheduler.cancel([ids[3]])
    assert (seen_when(scheduler, ids[3], ended).reason or "").startswith("CANCELLED")
    slurm.wait(lambda: len(run.began()) == 4, "four agents")
    run.go()
    for job in ids[:3]:
        seen_when(scheduler, job, ended)
    last = scheduler.look(ids)
    assert last[ids[0]].reason == last[ids[2]].reason == "COMPLETED"
    assert last[ids[1]].reason == "FAILED: NonZeroExitCode, exit code 3"
    # One agent per node, with the cores of all ranks.
    assert sorted(run.began()) == [
        f"job-{job}.node-{node}.began" for job in range(3) for node in (0, 1)
    ]
    assert run.began()["job-0.node-1.began"].split()[2:] == ["2", "2", "0"]


def test_many_jobs_are_one_query(
    slurm: SlurmBench, run: StandInRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = SlurmScheduler()
    ids = [scheduler.submit(run.request(job)) for job in range(8)]
    calls = tmp_path / "calls"
    for name in ("squeue", "scontrol", "sacct", "sinfo"):
        wrapper = tmp_path / "wrapped" / name
        wrapper.parent.mkdir(exist_ok=True)
        wrapper.write_text(
            f'#!/bin/sh\necho {name} >> {calls}\nPATH={os.environ["PATH"]} exec {name} "$@"\n'
        )
        wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'wrapped'}:{os.environ['PATH']}")
    seen = scheduler.look([*ids, "999999"])
    assert scheduler.interval_s == 1.0
    assert calls.read_text() == "squeue\n"
    assert [*seen] == [*ids, "999999"]
    assert seen["999999"] == JobStatus("ended", (), "SLURM no longer knows the job")
    assert scheduler.look(["999999"])["999999"].state == "ended"
    slurm.wait(lambda: len(run.began()) == 8, "eight agents")
    for _ in range(12):
        scheduler.look(ids)
    assert scheduler.interval_s == 30.0
    run.go()
    seen_when(scheduler, ids[0], ended)
    assert scheduler.interval_s == 1.0


def test_a_cancellation_and_a_requeue_are_distinguished(slurm: SlurmBench, run: StandInRun) -> None:
    scheduler = SlurmScheduler()
    cancelled, requeued = (scheduler.submit(run.request(job)) for job in (0, 1))
    slurm.wait(lambda: len(run.began()) == 2, "two agents")
    slurm.run("scancel", cancelled)
    slurm.run("scontrol", "requeue", requeued)
    assert (seen_when(scheduler, cancelled, ended).reason or "").startswith("CANCELLED")
    seen_when(scheduler, requeued, lambda seen: seen.state == "waiting")
    seen_when(scheduler, requeued, running)
    run.go()
    assert seen_when(scheduler, requeued, ended).reason == "COMPLETED"
    assert len(run.began()["job-1.node-0.began"].splitlines()) == 2


def test_a_preempted_job_waits_or_ends_depending_on_its_partition(
    slurm: SlurmBench, run: StandInRun
) -> None:
    scheduler = SlurmScheduler()
    back, gone = (
        scheduler.submit(run.request(job, nodes=2, cores=2, partition=partition))
        for job, partition in enumerate(("main", "fragile"))
    )
    seen_when(scheduler, back, running)
    seen_when(scheduler, gone, running)
    scheduler.submit(run.request(2, nodes=4, cores=2, partition="urgent"))
    assert (seen_when(scheduler, gone, ended).reason or "").startswith("PREEMPTED")
    seen_when(scheduler, back, lambda seen: seen.state == "waiting")


def test_a_node_that_dies_ends_its_job_and_only_its_job(slurm: SlurmBench, run: StandInRun) -> None:
    scheduler = SlurmScheduler()
    options = ["--no-requeue"]
    ids = [scheduler.submit(run.request(job, cores=2, directives=options)) for job in range(2)]
    nodes = [seen_when(scheduler, job, running).nodes[0] for job in ids]
    slurm.wait(lambda: len(run.began()) == 2, "two agents")
    slurm.kill_node(nodes[0])
    seen = seen_when(scheduler, ids[0], ended)
    assert seen.reason is not None and seen.reason.startswith("NODE_FAIL")
    assert seen.nodes == (nodes[0],)
    run.go()
    assert seen_when(scheduler, ids[1], ended).reason == "COMPLETED"


def test_jobs_outlive_the_daemons_of_node_and_controller(
    slurm: SlurmBench, run: StandInRun
) -> None:
    scheduler = SlurmScheduler()
    ids = [scheduler.submit(run.request(job, nodes=2)) for job in range(2)]
    for job in ids:
        node = seen_when(scheduler, job, running).nodes[0]
    slurm.wait(lambda: len(run.began()) == 4, "four agents")
    slurm.kill_slurmd(node)
    slurm.stop_slurmctld()
    last_known = {seen.state for seen in scheduler.look(ids).values()}
    assert last_known == {"running"}
    later = SlurmScheduler().look(ids)[ids[0]]
    assert later.state == "waiting" and "contact slurm controller" in (later.reason or "")
    slurm.start_slurmctld()
    slurm.start_slurmd(node)
    run.go()
    for job in ids:
        assert seen_when(scheduler, job, ended).reason == "COMPLETED"


def test_a_stop_reaches_the_agents_and_lets_them_finish(slurm: SlurmBench, run: StandInRun) -> None:
    scheduler = SlurmScheduler()
    runs = scheduler.submit(run.request(0, nodes=4, cores=2))
    waits = scheduler.submit(run.request(1, nodes=4, cores=2))
    seen_when(scheduler, runs, running)
    slurm.wait(lambda: len(run.began()) == 4, "four agents")
    scheduler.stop([runs, waits])
    assert seen_when(scheduler, runs, ended).reason == "COMPLETED"
    assert (seen_when(scheduler, waits, ended).reason or "").startswith("CANCELLED")
    assert len([*run.path.glob("job-0.node-*.stopped")]) == 4


def allocated(run: StandInRun, steps: list[Step], nodes: int) -> Request:
    request = run.request(
        9,
        nodes=nodes,
        tasks=2,
        gpus=1,
        partition="gpu",
        directives=["--mem=3000"],
        local_path="/local/$SLURM_JOB_ID",
    )
    request.script.write_text(allocation_script(request, run.path, steps))
    return request


def test_one_allocation_runs_its_jobs_together(slurm: SlurmBench, run: StandInRun) -> None:
    scheduler = SlurmScheduler()
    # Two jobs share the first node, one spans the next two, one has the last to itself.
    steps = [Step(0, 0, 1, 1), Step(1, 0, 1, 1), Step(2, 1, 2, 2), Step(3, 3, 1, 2)]
    (run.path / "code-2").write_text("1")
    job = scheduler.submit(allocated(run, steps, nodes=4))
    seen_when(scheduler, job, running)
    slurm.wait(lambda: len(run.began()) == 5, "five agents")  # they run at the same time
    run.go()
    assert seen_when(scheduler, job, ended).reason == "FAILED: NonZeroExitCode, exit code 1"
    agents = {name: text.split()[1:] for name, text in run.began().items()}
    local = f"/local/{job}"
    assert agents == {
        "job-0.node-0.began": ["g1", "1", "1", "1", local],
        "job-1.node-0.began": ["g1", "1", "1", "1", local],
        "job-2.node-0.began": ["g2", "2", "2", "2", local],
        "job-2.node-1.began": ["g3", "2", "2", "2", local],
        "job-3.node-0.began": ["g4", "1", "2", "2", local],
    }
    for other in (0, 1, 3):  # a job that fails does not end the others
        assert (run.path / f"job-{other}.node-0.ended").exists()
    times_s = [float(text.split()[0]) for text in run.began().values()]
    assert max(times_s) - min(times_s) < 5


def test_an_allocation_outlives_one_of_its_nodes(slurm: SlurmBench, run: StandInRun) -> None:
    scheduler = SlurmScheduler()
    steps = [Step(job, job, 1, 2) for job in range(4)]
    job = scheduler.submit(allocated(run, steps, nodes=4))
    slurm.wait(lambda: len(run.began()) == 4, "four agents")
    slurm.kill_node("g4", noticed=True)
    run.go()
    seen_when(scheduler, job, ended)
    names = sorted(path.name for path in run.path.glob("*.ended"))
    assert names == [f"job-{job}.node-0.ended" for job in range(3)]


def test_the_same_script_runs_in_an_existing_allocation(slurm: SlurmBench, run: StandInRun) -> None:
    request = allocated(run, [Step(job, job, 1, 2) for job in range(2)], nodes=2)
    run.go()
    look = "from vflops.launch.slurm import slurm_nodes as s; print(s.current_allocation())"
    command = 'bash "$0" && exec "$1" -c "$2"'
    done = subprocess.run(
        [
            "salloc",
            "-N2",
            "--partition=gpu",
            "-c2",
            "--gpus-per-node=2",
            "bash",
            "-c",
            command,
            request.script,
            sys.executable,
            look,
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "nodes=('g1', 'g2')" in done.stdout
    assert sorted(run.began()) == ["job-0.node-0.began", "job-1.node-0.began"]


def test_the_time_limit_of_a_job_that_sets_none(slurm: SlurmBench) -> None:
    assert [default_limit_s(name) for name in ("brief", "main", None)] == [60, 3600, 3600]


def test_a_refusal_has_the_schedulers_message_and_a_hint(
    slurm: SlurmBench, run: StandInRun
) -> None:
    scheduler = SlurmScheduler()
    with pytest.raises(UsageError) as refused:
        scheduler.submit(run.request(0, partition="nope"))
    assert "Invalid partition name specified (nope)" in refused.value.message
    assert refused.value.hint == (
        "set partition in site.toml to one of: brief, fragile, gpu, main, typed, urgent"
        " (sinfo lists them)"
    )
    with pytest.raises(UsageError, match="unrecognized option '--no-such-option'"):
        scheduler.submit(run.request(0, directives=["--no-such-option"]))


def test_time_limit_and_excluded_nodes_are_passed_on(slurm: SlurmBench, run: StandInRun) -> None:
    scheduler = SlurmScheduler()
    request = replace(run.request(0, time_limit="0:50"), exclude=("n1", "n3"))
    request.script.write_text(job_script(request, run.path, 0))
    job = scheduler.submit(request)
    assert seen_when(scheduler, job, running).nodes == ("n2",)
    assert slurm.run("squeue", "-h", "-j", job, "-o", "%l").strip() == "50:00"  # minutes
    slurm.drain("n2")
    other = scheduler.submit(request)
    assert seen_when(scheduler, other, running).nodes == ("n4",)


def test_a_retry_for_nodes_that_are_all_down_is_queued_until_they_are_back(
    slurm: SlurmBench, run: StandInRun
) -> None:
    scheduler, nodes = SlurmScheduler(), ",".join(GPU_NODES)
    slurm.run("scontrol", "update", f"nodename={nodes}", "state=down", "reason=test")
    request = run.request(0, nodes=2, tasks=8, gpus=1, partition="gpu")
    job = scheduler.submit(request)
    seen = seen_when(scheduler, job, lambda seen: bool(seen.reason))
    assert (seen.state, seen.ended_by) == ("waiting", None)
    slurm.resume(nodes)
    assert len(seen_when(scheduler, job, running).nodes) == 2
    run.go()
    assert seen_when(scheduler, job, ended).reason == "COMPLETED"


def test_node_lists_are_expanded_as_slurm_does(slurm: SlurmBench) -> None:
    for nodes in ("n1", "n[1-3,07-11],m4", "r[1-2]c[08-10],login", "a[0998-1002]"):
        assert [*expand_nodes(nodes)] == slurm.run("scontrol", "show", "hostnames", nodes).split()


_KILLED = """\
import os, signal
from tests.support import slurm_bench
with slurm_bench.started() as bench:
    bench.run("sbatch", "-N4", "-o", "/dev/null", "--wrap", "srun sleep 4321")
    bench.wait(lambda: bench.run("squeue", "-hs").count("sleep") == 1, "step", 10)
    print(bench.folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_bench_leaves_no_process_when_the_tests_are_killed(slurm: SlurmBench) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = done.stdout.strip().encode()

    def left() -> list[str]:
        processes = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                processes += [str(text)] if folder in text else []
        return processes

    slurm.wait(lambda: not left(), "end of the bench", 10)
    shutil.rmtree(folder.decode())


def test_a_submission_of_a_command_that_died_is_found_and_not_repeated(
    slurm: SlurmBench, vflops: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    wrapper = tmp_path / "wrapped" / "sbatch"
    wrapper.parent.mkdir()
    path = os.environ["PATH"]
    wrapper.write_text(f'#!/bin/bash\nPATH={path} sbatch "$@" >/dev/null\nkill -KILL $PPID\n')
    wrapper.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{wrapper.parent}:{path}")
        process = started(tmp_path, "--on", "slurm", epochs=2)  # one model by itself
        process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    folder = RunFolder.open(next((tmp_path / "runs").iterdir()))
    assert len(read_intents(folder)) == 1 and read_submission(folder, 1) is None
    attached = vflops("attach", folder.path)
    assert attached.returncode == 0, attached.stderr
    assert "of 1 jobs, 1 are active" in attached.stderr or "1 have ended" in attached.stderr
    record = read_submission(folder, 1)
    assert record is not None and record.attempt == 1
    history = folder.history()
    assert history.state.complete and len(history.jobs[1]) == 1
    assert not history.events("job-lost") and not read_intents(folder)
    names = slurm.run("squeue", "-h", "--states=all", "-o", "%j").split()
    assert sum(folder.record.id.rpartition("-")[2] in name for name in names) == 1
