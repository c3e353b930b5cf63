"""Settings that are refused before a run folder is created, with hints, and options of a run.

SLURM is played by two scripts: ``sinfo`` lists the nodes of a file, ``sbatch`` is only there.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.trained_runs import job as a_job
from vflops.cli import main
from vflops.cli.terminal.jobs_table import _summary_line
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.launch.controller import JobProgress
from vflops.launch.factory import launcher
from vflops.launch.nodes import waves
from vflops.launch.slurm.slurm_scheduler import SlurmScheduler
from vflops.record.folder import RunFolder
from vflops.record.formats.job import JobRecord
from vflops.run import pipeline, validate
from vflops.units import count
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile, workload_settings

IMAGES = "image-classification"
FORMER = "[container]\nimage = 'before.sif'\n"
TINY = (IMAGES, "--profile", "tiny")
Cluster = Callable[..., None]
Said = subprocess.CompletedProcess[str]
Command = Callable[..., Said]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, no site but its own, nothing of a scheduler's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A SLURM of nodes n1, n2 … in the given states, of two processors in the default partition."""
    programs = tmp_path_factory.mktemp("slurm")
    nodes = programs / "nodes"
    answers = {
        "sinfo": 'case "$*" in *partition=nowhere*|*%L*) ;; *%R*) echo main ;; '
        f"*) cat {nodes} ;; esac",
        "scontrol": "echo 'JobId=7   Nodes=n[2-3] CPU_IDs=0 Mem=1000 GRES='",
        "sbatch": "echo 'allocation failure: Invalid partition name specified' >&2; exit 1",
    }
    for name, answer in answers.items():
        (programs / name).write_text(f"#!/bin/bash\n{answer}\n")
        (programs / name).chmod(0o755)

    def of(*states: str, more: str = "") -> None:
        lines = [
            f"n{k}|2|4000|(null)|{state}|main*|none\n" for k, state in enumerate(states, start=1)
        ]
        nodes.write_text("".join(lines) + more)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    of("idle", "idle", "idle", "idle")
    return of


@pytest.fixture
def run_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process, which has loaded torch already."""

    def run(*arguments: object) -> Said:
        words = [str(word) for word in arguments]
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["vflops", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), out, err)

    return run


def settings(*given: str) -> Settings:
    return load(profile("tiny", [IMAGES]), None, ["launch.on=slurm", *given])


def admitted(*given: str) -> None:
    chosen = settings(*given)
    validate.check_launch(chosen.launch)
    validate.check(chosen, workload(IMAGES), workload_settings(chosen)[IMAGES])


@pytest.mark.parametrize(
    ("given", "error", "hint"),
    [
        # Without launch.ranks_per_node an allocation has a node for each model.
        (("bagging.models=8",), "no room for 8 models of 1 rank (8 slots) on 4 nodes with 4 slots",
         "--waves; or share nodes: --set launch.ranks_per_node=2"),
        (("bagging.models=9",), "on 4 nodes with 4 slots", "choose 4 models of 1 rank"),
        (("bagging.models=9", "launch.ranks_per_node=2"), "on 4 nodes with 8 slots", "8 models"),
        (("bagging.models=9", "launch.start=apart"), "on 4 nodes with 8 slots", "8 models"),
        (("bagging.models=5", "launch.cores_per_rank=2"), "on 4 nodes with 4 slots", "4 models"),
        (("launch.ranks_per_node=3",), "no node that could take a rank", "launch.cores_per_rank"),
        (("train.ranks=4",), "no node takes 4 ranks: the largest takes 2", "ranks_per_node=2"),
        (("launch.gpus_per_rank=1",), "no node that could take a rank", "launch.gpus_per_rank"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)  # fmt: skip
def test_what_slurm_could_never_start_is_refused(
    cluster: Cluster, given: tuple[str, ...], error: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        admitted(*given)
    assert error in refused.value.message
    assert hint in (refused.value.hint or "")


@pytest.mark.parametrize(
    "given",
    [
        ("bagging.models=4",),
        ("bagging.models=8", "launch.ranks_per_node=2"),
        ("bagging.models=8", "launch.start=apart"),
        ("bagging.models=8", "bagging.waves=true"),
        ("bagging.models=2", "train.ranks=4", "launch.ranks_per_node=2"),
    ],
    ids=" ".join,
)
def test_what_fits_is_admitted(cluster: Cluster, given: tuple[str, ...]) -> None:
    admitted(*given)


def test_busy_nodes_count_and_lost_ones_do_not(cluster: Cluster) -> None:
    cluster("allocated", "mixed-", "idle~", "reserved")
    admitted("bagging.models=4")
    for state in ("drained", "draining", "down*", "idle*", "failing"):
        cluster("allocated", "idle", "idle", state)
        admitted("bagging.models=3")
        with pytest.raises(UsageError, match="on 3 nodes with 3 slots"):
            admitted("bagging.models=4")


def test_nodes_are_those_of_the_partition_that_jobs_get(cluster: Cluster, directory: Path) -> None:
    cluster("idle", "idle", more="g1|2|4000|(null)|idle|gpu|none\n")
    with pytest.raises(UsageError, match="on 2 nodes with 2 slots"):
        admitted("bagging.models=3")
    for site in ('partition = "nowhere"', 'directives = ["--ntasks-per-core=1", "-p nowhere"]'):
        (directory / "site.toml").write_text(site)
        with pytest.raises(UsageError) as refused:
            admitted()
        assert "Invalid partition name specified (nowhere)" in refused.value.message
        assert "set partition in site.toml to one of: main" in (refused.value.hint or "")


def test_a_held_allocation_is_all_there_is(
    cluster: Cluster, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "site.toml").write_text('partition = "nowhere"')  # the allocation has its own
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[2-3]")
    admitted("bagging.models=2", "launch.start=apart")
    with pytest.raises(UsageError, match="on 2 nodes with 2 slots"):
        admitted("bagging.models=3", "launch.start=apart")
    with pytest.raises(UsageError, match="no node takes 2 ranks"):
        admitted("train.ranks=2")


def records(number: int) -> list[JobRecord]:
    train = profile("tiny", [IMAGES]).workloads[IMAGES]
    return [a_job(k, repeat=0, ranks=1, settings=train) for k in range(1, number + 1)]


def test_waves_are_as_many_jobs_as_fit_at_once(cluster: Cluster) -> None:
    def sizes(*given: str) -> list[int]:
        return [len(wave) for wave in waves(settings(*given), records(9))]

    assert sizes("bagging.waves=true") == [4, 4, 1]
    assert sizes("bagging.waves=true", "launch.ranks_per_node=2") == [8, 1]
    assert sizes("bagging.waves=true", "launch.start=apart") == [9]  # the queue lets them wait
    assert sizes() == [9]
    assert [e.job for wave in waves(settings("bagging.waves=true"), records(9)) for e in wave] == [
        *range(1, 10)
    ]


def test_jobs_in_a_queue_wait_and_its_words_are_shown() -> None:
    jobs = [
        JobProgress(record, state="running", awaited=True, location="PENDING: Resources")
        for record in records(2)
    ]
    assert _summary_line(jobs).startswith("2 models: 2 waiting (PENDING: Resources);")
    jobs[0].awaited, jobs[0].location = False, "n1"
    assert _summary_line(jobs).startswith("2 models: 1 running, 1 waiting;")


@pytest.mark.parametrize(
    ("arguments", "site", "error", "hint"),
    [
        (("--on", "slurm", "--models", 16), "", "no room for 16 models", "models of 1 rank"),
        (("--on", "slurm"), "acount = 'x'", "unknown key 'acount'", "account"),
        (("--container", "x.sif"), "", "x.sif needs a scheduler", "add --on slurm"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_wrong_settings_make_no_folder(
    cluster: Cluster,
    run_command: Command,
    directory: Path,
    arguments: tuple[object, ...],
    site: str,
    error: str,
    hint: str,
) -> None:
    if site:
        (directory / "site.toml").write_text(site)
    for command in (("run", *TINY), ("scale", *TINY, "--scales", 16)):
        given = arguments if command[0] == "run" else arguments[:2]  # its scales are M × P
        result = run_command(*command, *given)
        assert result.returncode == 2, result.stderr
        shown = " ".join(result.stderr.split())
        assert error in shown and hint in shown
    assert [path.name for path in directory.iterdir()] == (["site.toml"] if site else [])


@pytest.mark.parametrize(
    ("arguments", "models", "ranks", "per_node"),
    [
        (("--scale", 8), 4, 2, 2),  # four nodes of two processors
        (("--scale", 4), 2, 2, 2),
        (("--scale", 8, "--ranks", 1), 8, 1, 2),
        (("--scale", 8, "--models", 2), 2, 4, 2),
        (("--scale", 8, "--set", "count.models=[]"), 4, 2, 2),
        (("--scale", 3, "--set", "launch.ranks_per_node=1"), 3, 1, 1),
        (("--scale", 4, "--set", "launch.cores_per_rank=2"), 4, 1, 1),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_a_scale_is_the_same_in_a_run_and_its_plan(
    cluster: Cluster,
    run_command: Command,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[object, ...],
    models: int,
    ranks: int,
    per_node: int,
) -> None:
    given: list[Settings] = []

    def start(out: Path, name: str, settings: Settings, *rest: object, **more: object) -> None:
        given.append(settings)
        raise UsageError("no run in this test")

    monkeypatch.setattr(pipeline, "start", start)
    result = run_command("run", *TINY, "--on", "slurm", *arguments)
    said = f"scale {models * ranks} = {count(models, 'model')} × {count(ranks, 'rank')}; a rank has"
    assert said in " ".join(result.stderr.split())
    (chosen,) = given
    assert chosen.models_of(IMAGES) == models
    assert chosen.workloads[IMAGES]["train"]["ranks"] == ranks
    assert (chosen.launch.ranks_per_node or ranks) == per_node
    planned = run_command("plan", *TINY, "--on", "slurm", *arguments, "--json")
    assert planned.returncode == 0, planned.stderr
    whole = json.loads(planned.stdout)["workloads"][IMAGES]
    assert (whole["models"], whole["ranks"], whole["scale"]) == (models, ranks, models * ranks)


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        ((*TINY, "--on", "slurm", "--scale", 5), "do not make the scale 5 (equation 5)",
         "choose 5 models of 1 rank with --ranks; or --scale 4 or 6"),
        ((*TINY, "--on", "slurm", "--scale", 9), "scale 9 is too large", "choose at most 8"),
        ((*TINY, "--on", "slurm", "--scale", 8, "--models", 4, "--ranks", 1),
         "4 models × 1 rank do not make the scale 8", "choose 4 models of 2 ranks"),
        ((*TINY, "--on", "slurm", "--scale", 8, "--set", "train.ranks=1"),
         "--scale 8 conflicts with --set train.ranks=1", "--ranks P with --scale"),
        ((*TINY, "--on", "slurm", "--scale", 8, "--set", f"{IMAGES}.models=2"),
         f"--scale 8 conflicts with --set {IMAGES}.models=2", "--models M or"),
        ((*TINY, "--on", "slurm", "--scale", 8, "--set", f"workloads.{IMAGES}.train.ranks=2"),
         "conflicts with --set workloads", "--ranks P with --scale"),
        # Neither can 3 ranks share its batch of 32: the scale is the first thing to change.
        ((*TINY, "--on", "slurm", "--scale", 10, "--ranks", 3), "scale 10 is too large", "most 8"),
        ((*TINY, "--on", "slurm", "--scale", 6, "--ranks", 0), "ranks is 0", "at least 1"),
        (("automl", "--profile", "tiny", "--scale", 2), "automl is a search: --scale 2",
         "use --workers W"),
        (("--profile", "tiny", "--scale", 2), "automl is a search", "name a workload"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)  # fmt: skip
def test_a_scale_that_cannot_be_is_refused_with_the_nearest(
    cluster: Cluster, run_command: Command, directory: Path, arguments: Any, error: str, hint: str
) -> None:
    run, plan = (run_command(command, *arguments) for command in ("run", "plan"))
    assert run.returncode == 2 and run.stderr.endswith(plan.stderr)  # after what it would do
    said = " ".join(run.stderr.split())
    assert error in said and hint in said
    assert not (directory / "runs").exists()


@pytest.mark.parametrize("command", ["run", "plan"])
def test_of_unequal_nodes_the_smallest_gives_the_ranks(
    cluster: Cluster, run_command: Command, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    cluster("idle", "idle", more="n3|4|4000|(null)|idle|main*|none\n")
    given: list[Settings] = []

    def stop(*rest: object, **more: object) -> None:
        given.extend(item for item in rest if isinstance(item, Settings))
        raise UsageError("no run in this test")

    monkeypatch.setattr(pipeline, "start", stop)
    monkeypatch.setattr(validate, "check_all", stop)
    run_command(command, *TINY, "--on", "slurm", "--scale", 6)
    (chosen,) = given
    assert (chosen.models_of(IMAGES), chosen.workloads[IMAGES]["train"]["ranks"]) == (3, 2)
    assert chosen.launch.ranks_per_node is None  # those of one model


def test_a_command_is_bagged_only_if_its_predictions_can_be_judged(
    run_command: Command, directory: Path
) -> None:
    (directory / "train.py").write_text("")
    given = ["command.command={python} train.py", "samples=10", "target=1"]
    given += ["ops_forward=1", "ops_total=3", "command.train.batch=2", "quality=F1"]
    words = ["command", "--profile", "tiny", *(w for item in given for w in ("--set", item))]
    for verb in ("run", "plan"):
        machine = ("--nodes", 1, "--slots", 2) if verb == "plan" else ()
        result = run_command(verb, *words, "--models", 2, *machine)
        assert result.returncode == 2
        assert "the quality 'F1' of an ensemble cannot be computed" in result.stderr
        assert "command.combine_quality=accuracy" in result.stderr
    assert not (directory / "runs").exists()
    alone = run_command("plan", *words, "--nodes", 1, "--slots", 2)
    assert alone.returncode == 0, alone.stderr
    assert "--models 1 --ranks 1" in alone.stderr
    assert "--set 'command.command={python} train.py'" in " ".join(alone.stderr.split())
    both = run_command(
        "plan", *words, "--set", "quality=accuracy", "--models", 2, "--nodes", 1, "--slots", 2
    )
    assert both.returncode == 0, both.stderr
    assert "--models 2 --ranks 1" in both.stderr


def test_a_workload_without_predictions_cannot_be_bagged() -> None:
    spec = replace(workload(IMAGES), can_be_bagged=False)
    chosen = settings("bagging.models=2")
    with pytest.raises(UsageError, match="cannot be an ensemble") as caught:
        validate.check_ensemble(chosen, spec, workload_settings(chosen)[IMAGES])
    assert "--repeat 2" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("site", "words"),
    [
        ("", "apptainer exec --bind "),
        (f"{FORMER}runtime = 'podman'\nmounts = ['/data']", "podman run --rm"),
    ],
)
def test_the_container_of_the_settings_reaches_the_script(
    cluster: Cluster, directory: Path, monkeypatch: pytest.MonkeyPatch, site: str, words: str
) -> None:
    (directory / "site.toml").write_text(site)
    chosen = settings("bagging.models=2", "launch.container=new image.sif")
    folder = RunFolder.create(directory, IMAGES, chosen)
    for record in records(2):
        folder.job_file(record.job).parent.mkdir(parents=True)
    monkeypatch.setattr(SlurmScheduler, "submit", lambda self, request: "1")
    kept = RunFolder.open(folder.path)  # as another controller finds it
    launcher(kept, records(2)).start({1: 1, 2: 1})
    script = (folder.path / "allocation-1.sh").read_text()
    assert words in script and '"new image.sif" "python3"' in script
    assert "before.sif" not in script and ('"/data:/data"' in script) == ("podman" in words)


def test_the_option_is_the_setting(
    run_command: Command, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    seen: list[Any] = []

    def start(
        parent: Path, name: str, chosen: Settings, observer: object, **options: object
    ) -> None:
        seen.append(chosen.launch.container)
        raise UsageError("seen")

    monkeypatch.setattr("vflops.run.pipeline.start", start)
    run_command("run", *TINY, "--on", "slurm", "--container", "docker://site/vflops:1")
    run_command(
        "scale", *TINY, "--scales", 1, "--on", "slurm", "--container", "docker://site/vflops:1"
    )
    assert seen == ["docker://site/vflops:1"] * 2


def test_twins_repeats_and_seeds_are_planned_as_they_run(run_command: Command) -> None:
    machine = (*TINY, "--nodes", 2, "--slots", 2, "--ranks", 1)
    odd = run_command("plan", *machine, "--models", 3, "--twins")
    assert odd.returncode == 2
    assert "twins come in pairs" in odd.stderr
    result = run_command("plan", *machine, "--twins", "--repeat", 2, "--seed", 7, "--json")
    plan = json.loads(result.stdout)
    assert [item["model"] for item in plan["placements"]] == [0, 2, 1, 3]
    assert plan["workloads"][IMAGES]["repeat"] == 2
    shown = run_command("plan", *machine, "--twins", "--repeat", 2, "--seed", 7)
    assert [line.split()[0] for line in shown.stdout.splitlines()[2:6]] == ["1", "3", "2", "4"]
    assert "--repeat 2 --seed 7 --twins" in " ".join(shown.stderr.split())


@pytest.mark.parametrize(
    ("rules", "purpose"),
    [
        ("executed", "--against hpcai500   (compare with the rules of HPC AI500)"),
        ("hpcai500", "--against executed   (compare with what the framework executes)"),
    ],
)
def test_a_count_suggests_the_other_convention(
    run_command: Command, rules: str, purpose: str
) -> None:
    result = run_command("count", "torch.nn:ReLU", "--input", 10, "--rules", rules)
    assert purpose in " ".join((result.stdout + result.stderr).split("\n"))


def test_a_convention_that_does_not_apply_is_named_beside_the_others(run_command: Command) -> None:
    model = ("count", "torch.nn:ReLU", "--input", 10)
    result = run_command(*model, "--against", "executed,palm,hpcai500")
    assert result.returncode == 0
    assert "palm does not apply: " in result.stderr
    assert "hpcai500" in result.stdout
    refused = run_command(*model, "--rules", "palm")
    assert refused.returncode == 2
    assert "palm does not apply: " in refused.stderr


def test_a_plan_of_a_paper_leads_to_a_run_on_its_data(run_command: Command) -> None:
    machine = ("--nodes", 1, "--slots", 8)
    shown = run_command("plan", "automl", "--profile", "aiperf", *machine).stderr
    assert "--data DIR" in " ".join(shown.split())
