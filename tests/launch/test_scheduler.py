"""A site's settings, the text of job scripts, and schedulers that are not installed."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from vflops.config.launch import LaunchSettings
from vflops.config.profiles import tiny
from vflops.errors import UsageError
from vflops.launch import site
from vflops.launch.agent_report import last_report
from vflops.launch.factory import launcher_class
from vflops.launch.job_script import (
    AGENT,
    ELSEWHERE_CODE,
    Request,
    Step,
    node_command,
)
from vflops.launch.node_group import NodeGroup
from vflops.launch.node_layout import NodeLayout
from vflops.launch.scheduler import Unreachable
from vflops.launch.site import SiteSettings, site_for
from vflops.launch.slurm.sbatch_script import allocation_script, job_script
from vflops.launch.slurm.slurm_nodes import (
    Allocation,
    current_allocation,
    expand_nodes,
    list_nodes,
    unreachable_nodes,
)
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler
from vflops.launch.slurm.step_ends import StepEnd, StepEnds
from vflops.record.files.lock import locked
from vflops.record.folder import RunFolder
from vflops.record.formats.job import DataFacts, Goal, JobRecord

SITE = """\
account = "proj42"
partition = "gpu"
time_limit = "1-02:30"
directives = ["--qos=benchmark", "--constraint=a100"]
modules = ["gcc/13", "cuda"]
local_path = "$TMPDIR/vflops"
python = "/opt/venv/bin/python"

[environment]
NCCL_DEBUG = "WARN"
PATH = "/opt/x y/bin:$PATH"

[container]
image = "/images/vflops.sif"
mounts = ["/data"]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text)
    return path


def request(folder: Path, settings: SiteSettings, nodes: int = 2) -> Request:
    return Request("vf", folder / "job.sh", nodes, 4, 8, 1, folder / "job.out", settings)


def bash(script: str, *options: str, **environment: str) -> str:
    done = subprocess.run(
        ["bash", *options],
        input=script,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_whole_site_is_read(tmp_path: Path) -> None:
    settings = site.load(written(tmp_path, SITE))
    assert settings.time_limit_s == 26 * 3600 + 30 * 60
    assert settings.container is not None and settings.container.runtime == "apptainer"
    assert settings.interpreter == "/opt/venv/bin/python"
    assert SiteSettings().interpreter == sys.executable
    assert SiteSettings.model_validate({"container": {"image": "x"}}).interpreter == "python3"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("acount = 'x'", "unknown key 'acount' in ", "did you mean account"),
        ("[container]\nimage='x'\nruntme='docker'", "unknown key 'runtme'", "runtime"),
        (
            "[container]\nimage='x'\nruntime='lxc'",
            "container.runtime = 'lxc'",
            "docs/how-to/cluster.md",
        ),
        (
            "time_limit = '90'",
            "time_limit = '90': expected hours and minutes",
            "docs/how-to/cluster.md",
        ),
        ("time_limit = '1:75'", "time_limit = '1:75'", "docs/how-to/cluster.md"),
        ("partition = ''", "partition = '': expected one line", "docs/how-to/cluster.md"),
        ("directives = ['qos=x']", "directives.0 = 'qos=x': expected an option", "docs"),
        ("modules = 'gcc'", "modules = 'gcc'", "docs/how-to/cluster.md"),
        (
            "[environment]\n'A-B' = 'x'",
            "'A-B' is not a valid variable name",
            "docs/how-to/cluster.md",
        ),
        ("account", "is not TOML", None),
    ],
)
def test_a_wrong_site_is_refused(tmp_path: Path, text: str, message: str, hint: str | None) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UsageError) as error:
        site.load(path)
    assert message in error.value.message and str(path) in error.value.message
    assert hint is None or hint in (error.value.hint or "")


def test_the_site_of_the_folder_takes_precedence_over_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    (home / ".config" / "vflops").mkdir(parents=True)
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(here)
    assert site.find_site() == SiteSettings()
    written(home / ".config" / "vflops", "account = 'mine'")
    assert site.find_site().account == "mine"
    written(here, "account = 'ours'")
    assert site.find_site().account == "ours"
    with pytest.raises(UsageError, match=r"cannot read .*nowhere\.toml"):
        site.load(tmp_path / "nowhere.toml")


def test_a_job_script_contains_all_settings_of_the_site(tmp_path: Path) -> None:
    run = tmp_path / "a run"
    text = job_script(request(tmp_path, site.load(written(tmp_path, SITE))), run, 7)
    bash(text, "-n")
    lines = text.splitlines()
    directives = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert directives == [
        "--job-name=vf",
        f"--output={shlex.quote(str(tmp_path / 'job.out'))}",
        "--open-mode=append",
        "--nodes=2",
        "--ntasks-per-node=4",
        "--cpus-per-task=8",
        "--gres=gpu:4",
        "--account=proj42",
        "--partition=gpu",
        "--time=26:30:00",
        "--signal=USR1@90",
        "--qos=benchmark",
        "--constraint=a100",
    ]
    command = text[text.index("srun") :].replace("\\\n", "").split()
    assert command == [
        *("srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32".split()),
        *("--mem=0 --gres=gpu:4 --kill-on-bad-exit=1 apptainer exec --nv --bind".split()),
        *(f'"{run}:{run}" --bind "/data:/data" --bind'.split()),
        '"$TMPDIR/vflops:$TMPDIR/vflops"',
        '"/images/vflops.sif"',
        *('"/opt/venv/bin/python" -P -m vflops.launch.agent'.split()),
        *f"'{run}' 7".split(),
    ]


def test_the_job_script_in_the_documentation_is_a_real_one() -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text(encoding="utf-8")
    run = Path("/shared/runs/R")
    settings = {
        "account": "proj42",
        "partition": "gpu",
        "time_limit": "12:00",
        "modules": ["cuda/12.6"],
        "local_path": "/scratch/$USER",
        "python": "/shared/vflops/bin/python",
    }
    measuring = Request(
        name="vflops-4f1a9c-job-3",
        script=run / "job-3.sh",
        nodes=2,
        tasks_per_node=4,
        cores_per_task=16,
        gpus_per_task=1,
        output=run / "jobs" / "3" / "job-3.log",
        site=SiteSettings.model_validate(settings),
        checks_folder=True,
        measures=True,
        gpu_type="h100",
        memory_mb_per_task=60_000,
    )
    assert f"```text\n{job_script(measuring, run, 3)}```\n" in page


@pytest.mark.parametrize("measures", [True, False])
def test_nodes_look_for_the_run_folder_before_anything_else(tmp_path: Path, measures: bool) -> None:
    """The line of the node that does not see it is the report of every job of the script."""
    stand_in = tmp_path / "srun"
    stand_in.write_text('#!/bin/bash\nwhile [ "$1" != bash ]; do shift; done; exec "$@"\n')
    stand_in.chmod(0o755)
    run = tmp_path / "it's @ run"
    checked = replace(request(tmp_path, SiteSettings()), checks_folder=True, measures=measures)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURMD_NODENAME": "n7"}
    text = job_script(checked, run, 3)
    done = subprocess.run(
        ["bash", "-c", text], env=path, capture_output=True, check=False, timeout=60
    )
    report = last_report(done.stderr, 3)
    assert report is not None and (report.outcome, done.returncode) == ("unseen", 2)
    assert report.text == f"n7: the node does not see the run folder {run}"


@pytest.mark.parametrize("code, trains", [(0, True), (3, True), (142, True), (143, False)], ids=str)
def test_nodes_measure_before_the_job_and_only_a_stop_keeps_it_from_training(
    tmp_path: Path, code: int, trains: bool
) -> None:
    stand_in = tmp_path / "srun"
    stand_in.write_text(
        f'#!/bin/bash\necho "${{@: -5}}"\n[[ "$*" != *node_check* ]] || exit {code}\n'
    )
    stand_in.chmod(0o755)
    measuring = replace(request(tmp_path, SiteSettings()), measures=True)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    text = job_script(measuring, tmp_path, 3)
    done = subprocess.run(
        ["bash", "-c", text], env=path, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if "-m vflops.launch" in line]
    assert lines[0] == f"-m vflops.launch.node_check {tmp_path} 8 4"
    assert any("vflops.launch.agent" in line for line in lines) is trains
    assert done.returncode == (0 if trains else 1)
    assert ("were not measured" in done.stdout) is (code in (3, 142))
    assert "node_check" not in job_script(replace(measuring, measures=False), tmp_path, 3)


def test_modules_and_environment_are_set_before_the_agent_starts(tmp_path: Path) -> None:
    settings = SiteSettings.model_validate(
        {
            "modules": ["gcc/13"],
            "environment": {"ODD": 'a "b" `c` \\d $HOME', "PATH": f"{tmp_path}:$PATH"},
            "local_path": "/local/$USER",
        }
    )
    stand_in = tmp_path / "srun"
    stand_in.write_text('#!/bin/bash\necho "$ODD|$VFLOPS_LOCAL_PATH|${@: -2}"\n')
    stand_in.chmod(0o755)
    text = job_script(request(tmp_path, settings), tmp_path / "it's a run", 3)
    module = {"BASH_FUNC_module%%": '() { echo "module $*"; }'}
    output = bash(text, HOME="/home/me", USER="me", **module)
    assert output.splitlines() == [
        "module load gcc/13",
        f'a "b" `c` \\d /home/me|/local/me|{tmp_path}/it\'s a run 3',
    ]
    failing = {"BASH_FUNC_module%%": "() { return 4; }"}
    done = subprocess.run(
        ["bash", "-c", text], env={**os.environ, **failing}, check=False, capture_output=True
    )
    assert (done.returncode, done.stdout) == (4, b"")


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (
            "docker",
            ["docker run --rm", '--volume "/runs/a:/runs/a"', "--env SLURM_NODEID"],
        ),
        (
            "podman",
            ["podman run --rm", "--userns=keep-id", "--env SLURM_NODEID"],
        ),
        ("pyxis", ['--container-image="vflops:1"', '--container-mounts="/runs/a:/runs/a"']),
        ("charliecloud", ['ch-run --bind "/runs/a:/runs/a"', '"vflops:1" --']),
    ],
)
def test_each_container_runtime_wraps_the_agent(
    tmp_path: Path, runtime: str, words: list[str]
) -> None:
    container = {"image": "vflops:1", "runtime": runtime}
    settings = SiteSettings.model_validate({"container": container})
    text = job_script(request(tmp_path, settings), Path("/runs/a"), 0)
    bash(text, "-n")
    for word in words:
        assert word in text
    assert text.rstrip().endswith('"python3" -P -m vflops.launch.agent /runs/a 0')


@pytest.mark.parametrize("visible", ["4,5", "GPU-c, 5", "MIG-7", None])
@pytest.mark.parametrize("runtime", ["docker", "podman"])
def test_a_container_has_the_gpus_and_cores_of_its_step_and_no_others(
    tmp_path: Path, runtime: str, visible: str | None
) -> None:
    """A number names another GPU in the container than outside, so they are named by UUID."""
    stand_ins = {
        runtime: 'printf "%s\\n" "$@"; echo "visible: $CUDA_VISIBLE_DEVICES"',
        "nvidia-smi": '[ "$2 $3" = "--query-gpu=uuid --format=csv,noheader" ] || exit 9\n'
        "case $1 in --id=4) echo GPU-a;; --id=5) echo GPU-b;; *) exit 6;; esac",
    }
    for name, code in stand_ins.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{code}\n")
        (tmp_path / name).chmod(0o755)
    site = SiteSettings.model_validate({"container": {"image": "i", "runtime": runtime}})
    command = node_command(site, tmp_path, "1", gpus=visible is not None)
    core = min(os.sched_getaffinity(0))
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = bash(
        f"taskset -cp {core} $$ > {os.devnull}\n{command}",
        **path,
        **({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}),
    ).splitlines()
    uuids = {"4,5": "GPU-a,GPU-b", "GPU-c, 5": "GPU-c,GPU-b", "MIG-7": "MIG-7", None: ""}[visible]
    assert words[-1] == f"visible: {uuids}"
    docker = ["--cpuset-cpus", str(core), *(["--gpus", f'"device={uuids}"'] if uuids else [])]
    devices = [f"nvidia.com/gpu={uuid}" for uuid in uuids.split(",") if uuid]
    podman = [word for device in devices for word in ("--device", device)]
    expected = docker if runtime == "docker" else podman
    assert words[: len(expected) + 2] == ["run", *expected, "--rm"]
    assert {"SLURM_CPUS_PER_TASK", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES"} <= set(words)
    assert not [word for word in words if word == "all" or word.endswith("=all")]
    failing = {**os.environ, **path, "CUDA_VISIBLE_DEVICES": "4,9"}
    done = subprocess.run(["bash", "-c", command], env=failing, check=False, capture_output=True)
    assert (done.returncode, done.stdout == b"") == ((6, True) if visible else (0, False))


@pytest.mark.parametrize("runtime", ["apptainer", "docker", "pyxis", None])
def test_nothing_but_variables_is_expanded(tmp_path: Path, runtime: str | None) -> None:
    container = {"image": "i$(touch a)", "runtime": runtime, "mounts": ["/m$(touch b)"]}
    settings = SiteSettings.model_validate(
        {
            "environment": {"ODD": "$(touch c)${HOME}$((1))${x:-$(touch d)}$1"},
            "local_path": "/l$(touch e)$HOME",
            "container": container if runtime else None,
        }
    )
    run = tmp_path / "$(touch f) $HOME `touch g` ${HOME}"
    stand_in = tmp_path / "srun"
    stand_in.write_text('#!/bin/bash\nprintf "%s\\n" "$@" "$ODD" "$VFLOPS_LOCAL_PATH"\n')
    stand_in.chmod(0o755)
    text = job_script(request(tmp_path, settings), run, 3)
    path = f"{tmp_path}:{os.environ['PATH']}"
    words = bash(f"cd {tmp_path}\n{text}", HOME="/h", PATH=path).splitlines()
    assert words[-4:] == [str(run), "3", "$(touch c)/h$((1))${x:-$(touch d)}$1", "/l$(touch e)/h"]
    assert not runtime or any(f"{run}:{run}" in word for word in words)
    assert {file.name for file in tmp_path.iterdir()} == {"srun"}


def test_a_run_folder_that_would_break_its_script_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has a line break"):
        job_script(request(tmp_path, SiteSettings()), tmp_path / "a\n#SBATCH --wait", 1)
    with pytest.raises(UsageError, match="with a backslash"):
        job_script(request(tmp_path / "a\\b", SiteSettings()), tmp_path, 1)


def test_an_allocation_must_be_large_enough_for_its_steps(tmp_path: Path) -> None:
    wanted = request(tmp_path, SiteSettings())
    text = allocation_script(wanted, Path("/runs/a"), [Step(0, 0, 1, 2), Step(1, 1, 1, 4, 3)])
    bash(text, "-n")
    words = "until_given_up 0 0 1 2 1 & pids+=($!)\nuntil_given_up 1 1 1 4 3 & pids+=($!)\n"
    assert words in text
    assert "#SBATCH --no-kill\n" in text
    with pytest.raises(UsageError, match="the jobs need 3 nodes, but the allocation has 2"):
        allocation_script(wanted, Path("/runs/a"), [Step(0, 1, 2, 4)])


def test_a_scheduler_that_is_not_installed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no sbatch here") as error:
        launcher_class("slurm").check(LaunchSettings())
    assert "--on local" in (error.value.hint or "")


def test_an_allocation_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert current_allocation() is None
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2,4]")
    assert current_allocation() == Allocation("12", ("n1", "n2", "n4"))


def test_names_of_nodes_keep_leading_zeros() -> None:
    assert [*expand_nodes("n[008-010],login,r[1-2]c[3,5]")] == [
        *("n008 n009 n010 login r1c3 r1c5 r2c3 r2c5".split())
    ]
    assert [*expand_nodes("")] == []


_SRUN = """\
#!/bin/bash
job="${@: -1}"
echo "$job" >> calls
code="$(sed -n "$(grep -cx "$job" calls)p" "codes-$job")"
[ "$code" != stop ] || { touch job.stop; code=3; }
[ "$code" != hung ] || { touch "run/jobs/$job/hung"; code=3; }
exit "${code:-0}"
"""


@pytest.mark.parametrize(
    ("jobs", "codes", "tries", "calls", "code"),
    [
        (2, [3, 0], 3, 2, 0),  # the agent reports that the run failed
        (2, [137, 137, 137], 2, 2, 1),  # killed, and tried no more than twice
        (2, [1, 0], 3, 1, 1),  # it was stopped, or its node is lost
        (2, [2, 0], 3, 1, 1),
        (2, ["stop", 0], 3, 1, 1),  # the run was cancelled while the script waited
        (2, [3, 0], 1, 1, 1),
        (2, ["hung", 0], 3, 2, 0),  # the other nodes have their own jobs
        (1, ["hung", 0], 3, 1, 1),  # another allocation has other nodes
        (1, [3, 0], 3, 2, 0),
    ],
)
def test_only_a_step_that_died_is_tried_again(
    tmp_path: Path, jobs: int, codes: list[object], tries: int, calls: int, code: int
) -> None:
    (tmp_path / "run" / "jobs" / "1").mkdir(parents=True)
    for name, text in (
        ("srun", _SRUN),
        ("scontrol", "#!/bin/sh\necho n1\n"),
        ("sleep", "#!/bin/sh\necho $1 >> pauses\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "codes-1").write_text("".join(f"{code}\n" for code in codes))
    (tmp_path / "codes-2").write_text("0\n")
    steps = [Step(job, 0, 1, 1, tries) for job in range(1, jobs + 1)]
    wanted = request(tmp_path, SiteSettings())
    text = allocation_script(wanted, tmp_path / "run", steps)
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_NODELIST": "n1"}
    options: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, **variables},
        "timeout": 20,
        "check": False,
        "capture_output": True,
    }
    done = subprocess.run(["bash", "-c", text], **options)
    assert done.returncode == code, done.stderr
    assert sorted((tmp_path / "calls").read_text().split()) == ["1"] * calls + ["2"] * (jobs - 1)
    given_up, last = code != 0 and "stop" not in codes, codes[calls - 1]
    ends = StepEnds().of(wanted.script)
    assert [*ends] == ([1] if given_up else [])  # a job that is done or stopped needs nothing else
    assert not given_up or ends[1][0] == StepEnd(job=1, code=int(str(last).replace("hung", "3")))
    (tmp_path / "codes-1").write_text("0\n" * 9)
    subprocess.run(["bash", "-c", text], **options)  # SLURM has requeued it
    again = (tmp_path / "calls").read_text().split().count("1") - calls
    assert again == (0 if given_up or "stop" in codes else 1)


def test_the_port_is_reserved_until_the_ranks_meet() -> None:
    step = {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}
    group = NodeGroup.of({**step, "SLURM_NODEID": "0"})
    assert group.leads and group.port is not None
    port = group.port.getsockname()[1]
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("", port))
    with socket.socket() as store:  # as torch's store does
        store.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        store.bind(("", port))
        store.listen()
    assert NodeGroup.of({**step, "SLURM_NODEID": "1"}).port is None
    assert NodeGroup.of({**step, "SLURM_NODEID": "0", "SLURM_STEP_NUM_NODES": "1"}).port is None
    group.port.close()


def test_jobs_share_nodes_and_are_tried_twice_in_an_allocation() -> None:
    shared = NodeLayout(ranks=1, slots=2).steps({1: 3, 2: 1, 3: 3})
    assert shared == [Step(1, 0, 1, 1, 2), Step(2, 0, 1, 1, 1), Step(3, 1, 1, 1, 2)]
    assert NodeLayout(ranks=4, slots=2).steps({7: 5, 8: 5})[1] == Step(8, 2, 2, 2, 2)


def command(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_a_machine_without_a_cluster_gets_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "fatal: Could not establish a configuration source"
    for name in ("sbatch", "squeue", "sinfo"):
        text = f"#!/bin/sh\necho '{name}: {words}' >&2\nexit 1\n"
        command(tmp_path / "bin", name, text, monkeypatch)
    scheduler = SlurmScheduler()
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n")
    wanted = Request("x", script, 1, 1, 1, 0, tmp_path / "out", SiteSettings())
    for ask in (
        lambda: scheduler.submit(wanted),
        lambda: scheduler.look(["1"]),
        lambda: scheduler.find("x", script),
        lambda: list_nodes(None),
    ):
        with pytest.raises(UsageError, match="configuration source") as error:
            ask()
        assert "not a login node of a SLURM cluster, or SLURM_CONF is not set" in (
            error.value.hint or ""
        )


def test_many_jobs_are_queried_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = f'#!/bin/sh\necho "$3" | tr , "\\n" | wc -l >> "{tmp_path}/calls"\n'
    command(tmp_path / "bin", "sbatch", "", monkeypatch)
    command(tmp_path / "bin", "squeue", counted, monkeypatch)
    seen = SlurmScheduler().look([str(job) for job in range(2500)])
    assert len(seen) == 2500
    assert (tmp_path / "calls").read_text().split() == ["1000", "1000", "500"]


def test_a_command_that_cannot_be_started_leaves_the_status_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(tmp_path / "bin", "sbatch", "", monkeypatch)
    (tmp_path / "bin" / "squeue").write_text("no program")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    seen = SlurmScheduler().look(["1"])["1"]
    assert seen.state == "waiting" and "squeue cannot be started" in (seen.reason or "")


def test_a_run_keeps_the_site_of_its_first_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, account in (("here", "mine"), ("there", "yours"), ("run", None), ("empty", None)):
        (tmp_path / name).mkdir()
        if account:
            (tmp_path / name / "site.toml").write_text(f'account = "{account}"\n')
    monkeypatch.chdir(tmp_path / "empty")
    site.copy_to_run(tmp_path / "empty")
    monkeypatch.chdir(tmp_path / "here")
    assert site.site_of_run(tmp_path / "run").account == "mine"  # before its launch
    site.copy_to_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path / "there")
    site.copy_to_run(tmp_path / "run")
    assert site.site_of_run(tmp_path / "run").account == "mine"
    assert site.site_of_run(tmp_path / "empty").account is None  # it had none at its launch
    settings = LaunchSettings(on="slurm")
    assert site_for(settings, tmp_path / "run").account == "mine"


def test_an_agent_leaves_a_job_that_another_one_is_running(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "image-classification", tiny())
    folder.job_file(1).parent.mkdir(parents=True)
    JobRecord(
        job=1,
        workload="image-classification",
        repeat=0,
        seed=1,
        ranks=1,
        goal=Goal(quality="accuracy", better="higher", target=0.7, exponent=1),
        settings={},
        data=DataFacts(path="", synthetic=True, fingerprint="", train=1, validation=1),
    ).write(folder.job_file(1))
    agent = [sys.executable, *AGENT, str(folder.path), "1"]
    with locked(folder.job_lock(1), folder.path):
        done = subprocess.run(agent, capture_output=True, text=True, timeout=60, check=False)
    report = last_report(done.stderr.encode(), 1)
    assert done.returncode == ELSEWHERE_CODE and report is not None
    assert (report.outcome, "in use by process" in report.message) == ("elsewhere", True)
    assert not folder.next_attempt(1)
    wanted = Request("x", tmp_path / "a.sh", 1, 1, 1, 0, tmp_path / "out", SiteSettings())
    script = allocation_script(wanted, folder.path, [Step(1, 0, 1, 1, 3)])
    assert f"code != {ELSEWHERE_CODE}))" in script


@pytest.mark.parametrize(
    ("codes", "tries", "expected"),
    [
        ((5, 5, 5, 3, 5, 0), 2, "0 after 6"),
        ((5, 3, 5, 3, 0), 2, "3 after 4"),
        ((1, 0), 2, "1 after 1"),
    ],
)
def test_a_script_does_not_count_a_worker_that_restarts_without_a_candidate(
    tmp_path: Path, codes: tuple[int, ...], tries: int, expected: str
) -> None:
    wanted = request(tmp_path, SiteSettings())
    text = allocation_script(wanted, tmp_path / "run", [Step(1, 0, 1, 1, tries)])
    first = text.index("with_retries() {")
    function = text[first : text.index("\n}\n", first) + 3]
    script = f"""
codes=({" ".join(map(str, codes))}); started=0; stop=nothing; run=nothing; jobs=1; steps={tmp_path}
sleep() {{ :; }}
step() {{ return ${{codes[$((started++))]}}; }}
{function}
with_retries 1 0 1 1 {tries} >&2
echo "$? after $started"
"""
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize(
    ("states", "started"),
    [
        ("mixed allocated", 3),
        ("allocated draining", 1),
        ("down*", 1),
        ("mixed*", 1),
        ("", 3),  # SLURM does not answer
    ],
)
def test_a_script_does_not_retry_a_step_on_a_node_that_is_drained_or_down(
    tmp_path: Path, states: str, started: int
) -> None:
    text = allocation_script(
        request(tmp_path, SiteSettings(), nodes=3), tmp_path / "run", [Step(1, 1, 2, 1, 3)]
    )
    names = next(line for line in text.splitlines() if line.startswith("names()"))
    unusable = next(line for line in text.splitlines() if line.startswith("stop="))
    first = text.index("with_retries() {")
    function = text[first : text.index("\n}\n", first) + 3]
    script = f"""
nodes=(n1 n2 n3); run=nothing; jobs=1; steps={tmp_path}; started=0
{names}
{unusable}
sinfo() {{ [ "$2" = --nodes=n2,n3 ] && printf '%s\\n' {states}; }}
sleep() {{ :; }}
step() {{ ((++started)); return 3; }}
{function}
with_retries 1 1 2 1 3 >&2
echo "$? after $started"
"""
    done = subprocess.run(["bash"], input=script, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"3 after {started}", done.stderr
    assert len(list(tmp_path.glob("1-*.log"))) == started


def test_nodes_that_are_down_or_that_slurm_does_not_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [
        "n1|allocated|none",
        "n2|down*|Not responding",
        "n3|allocated*|none",
        "n4|drained|disk",
        "n5|fail|board",
    ]
    text = "#!/bin/sh\ncat <<END\n" + "\n".join(listed) + "\nEND\n"
    command(tmp_path / "bin", "sinfo", text, monkeypatch)
    assert unreachable_nodes(["n1", "n2", "n3", "n4", "n5"]) == {
        "n2": Unreachable("n2 is down: Not responding", is_down=True),
        "n3": Unreachable("n3 does not respond to SLURM (allocated)", is_down=False),
        "n5": Unreachable("n5 is fail: board", is_down=True),
    }
