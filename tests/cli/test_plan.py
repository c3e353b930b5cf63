"""``vflops plan``: what a run would do, held against what runs do."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cores import needs_two_cores
from tests.support.slurm_bench import SlurmBench
from vflops.cli import main
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import Predicted
from vflops.record.readout.contents import Contents
from vflops.results.score.scoring import score
from vflops.workloads.contract.run_settings import profile
from vflops.workloads.image_classification.workload import ImageClassification

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]

TINY = ("image-classification", "--profile", "tiny")
SMALL = [
    part
    for item in ("synthetic.train=256", "synthetic.validation=60", "train.epochs=2")
    for part in ("--set", item)
]


@pytest.fixture
def vflops(
    vflops: Vflops,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Vflops:
    """The command in an empty folder; plans in this process, which has loaded torch already."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        if arguments[0] != "plan":
            return vflops(*arguments)
        words = [str(word) for word in arguments]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["vflops", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), out, err)

    return run


def planned(vflops: Vflops, *arguments: object) -> dict[str, Any]:
    result = vflops("plan", *arguments, "--json")
    assert result.returncode == 0, result.stderr
    planned_run: dict[str, Any] = json.loads(result.stdout)
    return planned_run


@needs_two_cores
def test_a_plan_is_what_the_run_then_does(vflops: Vflops, tmp_path: Path) -> None:
    settings = ("--models", 2, *SMALL)
    before = planned(vflops, *TINY, *settings)
    assert not (tmp_path / "runs").exists()
    whole = before["workloads"]["image-classification"]
    assert (whole["models"], whole["ranks"], whole["time_s"]) == (2, 1, None)
    run = vflops("run", *TINY, *settings, "--set", "micro.benchmarks=[]")
    assert run.returncode == 0, run.stderr
    path = latest(tmp_path / "runs")
    assert path is not None
    folder = RunFolder.open(path)
    scored = score(Contents(folder))
    assert whole["ops_training"] == scored.ensembles[0].ops_training
    speeds = [item.speed for item in scored.trainings if item.speed]
    assert whole["ops_evaluation"] == sum(speed.ops_evaluation for speed in speeds)
    assert whole["samples"] == sum(item.samples_trained for item in scored.trainings)
    history = folder.history()
    data = history.events("predictions", job=1)[-1].payload(Predicted)
    kept = sum(file.size_bytes for file in data.files)
    assert whole["prediction_bytes"] / 2 <= kept <= whole["prediction_bytes"] / 2 + 2000  # headers
    checkpoint = history.events("checkpoint", job=1)[-1].data["size_bytes"]
    size = whole["checkpoint_bytes"] / 2 / (10 + 3)
    assert size <= checkpoint <= size * 1.5
    _and_it_says_the_time_of_the_next(vflops, path, settings, scored.trainings[0].wall_s)


def _and_it_says_the_time_of_the_next(
    vflops: Vflops, path: Path, settings: tuple[object, ...], wall_s: float
) -> None:
    planned_run = planned(vflops, *TINY, *settings, "--like", path)["workloads"][
        "image-classification"
    ]
    assert 0.5 * wall_s < planned_run["time_s"] < 2 * wall_s
    assert planned_run["time_source"].startswith(path.name)
    assert "the slowest of 2" in planned_run["time_source"]


def test_a_graph_of_an_earlier_run_spares_torch(
    vflops: Vflops, trained_folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another network, or on other data, work is counted; else torch is not even imported."""
    program = (
        "import sys; sys.argv[0] = 'vflops'\n"
        "from vflops.cli import application\n"
        "application(sys.argv[1:])(standalone_mode=False)\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    job = trained_folder.job_file(1)
    record = json.loads(job.read_text())
    arguments = ["plan", *TINY, "--nodes", "1", "--slots", "1", "--set", "train.batch=4"]
    arguments += ["--like", str(trained_folder.path), "--json"]

    counted: list[str] = []
    work = ImageClassification.work

    def note(settings: Any, data: Any, name: str) -> Any:
        counted.append(name)
        return work(settings, data, name)

    monkeypatch.setattr(ImageClassification, "work", note)
    chosen = profile("tiny", ["image-classification"]).workloads["image-classification"]
    classes = {"classes": chosen["synthetic"]["classes"]}
    wider = {**chosen, "network": {**chosen["network"], "width": 16}}
    for settings, facts, times in (
        (wider, classes, 1),
        (chosen, {"classes": 5}, 2),
        (chosen, classes, 2),
    ):
        record["settings"], record["data"]["facts"] = settings, facts
        job.write_text(json.dumps(record))
        cache = tmp_path / f"cache-{len(list(tmp_path.glob('cache-*')))}"
        cache.mkdir()
        monkeypatch.setenv("VFLOPS_CACHE", str(cache))
        assert vflops(*arguments).returncode == 0
        assert len(counted) == times
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.split()[-1] == "False"


def test_4096_models_are_shown_by_the_first_and_the_last(vflops: Vflops, tmp_path: Path) -> None:
    result = vflops("plan", *TINY, "--nodes", 512, "--slots", 8, "--ranks", 1)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "4,096 models of 1 rank"
    assert [line.split()[0] for line in lines[2:9]] == [
        "1",
        "2",
        "3",
        "…",
        "4,094",
        "4,095",
        "4,096",
    ]
    assert lines[8].endswith("node 512: 7")
    assert "Sys_scale   4,096 of 4,096 slots, 512 of 512 nodes" in lines
    assert "--models 4096 --ranks 1" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_frames_of_the_reference_are_planned_and_not_drawn(vflops: Vflops) -> None:
    described = ("--nodes", 2, "--slots", 8, "--ranks", 8)
    planned_run = planned(vflops, "extreme-weather", "--profile", "reference", *described)
    whole = planned_run["workloads"]["extreme-weather"]
    frames = 1460 * 26
    assert whole["staged_node_bytes"] == frames * 768 * 1152 * 16 * 2
    assert whole["scale"] == 16
    assert len(planned_run["placements"]) == 2
    assert planned_run["placements"][1]["places"] == [["node 2", [0, 1, 2, 3, 4, 5, 6, 7]]]


def test_packed_data_says_its_size_itself(vflops: Vflops, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    few = ("--train", 40, "--val", 20, "--classes", 4, "--size", 16)
    assert vflops("data", "synth", "image-classification", folder, *few).returncode == 0
    assert vflops("data", "pack", folder, "packed", "--short-side", 16).returncode == 0
    chosen = ("--data", "packed", "--set", "target=0.5", "--nodes", 1, "--slots", 2)
    planned_run = planned(vflops, *TINY, *chosen, "--set", "train.batch=8")
    whole = planned_run["workloads"]["image-classification"]
    packed = [
        path
        for path in (tmp_path / "packed").iterdir()
        if path.suffix in (".bin", ".npz", ".digests")
    ]
    assert whole["staged_node_bytes"] == sum(path.stat().st_size for path in packed)
    assert whole["samples"] == 8 * 40
    own = ("--data", folder, "--set", "target=0.5", "--set", "train.batch=8")
    unpacked = planned(vflops, *TINY, *own)["workloads"][TINY[0]]
    assert unpacked["samples"] == whole["samples"]
    assert any("the run decodes and packs them" in remark for remark in unpacked["remarks"])


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (("--models", "3", "--ranks", "4"), "no room for 3 models of 4 ranks", "2 models of 4"),
        (("--models", "0"), "bagging.models = 0", ""),
        (("--ranks", "-1"), "train.ranks = -1", ""),
        (("--scale", "0"), "scale is 0", "at least 1"),
        (("--scale", "8", "--models", "3"), "do not make the scale 8", "choose"),
        (("--ranks", "3"), "batch 32 cannot be divided evenly by 3 ranks", ""),
        (("--on", "slurm", "--nodes", "4", "--ranks", "16", "--slots", "10"), "do not fill", "10"),
        (("--like", "nowhere"), "nowhere is not a run folder", ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_does_not_fit_is_refused(
    vflops: Vflops, tmp_path: Path, arguments: tuple[str, ...], error: str, hint: str
) -> None:
    machine = () if "--slots" in arguments else ("--nodes", "1", "--slots", "8")
    result = vflops("plan", *TINY, *machine, *arguments)
    assert result.returncode == 2
    assert error in result.stderr and hint in result.stderr
    assert list(tmp_path.iterdir()) == []


SHARED = ("--set", "parallel.mode=model", "--set", "parallel.split=tensor")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("automl", "--set", "train.precision=tf32"), "precision tf32 is not available here"),
        ((TINY[0], "--set", "train.precision=tf32"), "precision tf32 is not available here"),
        (("automl", "--repeat", 2), "which a run cannot repeat, but repeat is 2"),
        (("automl", "--set", "search.limits.parameters=10"), "starts from is too large"),
        (
            (TINY[0], "--set", "launch.container=here.sif"),
            "the container here.sif needs a scheduler",
        ),
    ],
)
def test_what_a_run_refuses_is_not_planned(
    vflops: Vflops, tmp_path: Path, arguments: tuple[object, ...], error: str
) -> None:
    """With the same words."""
    planned = vflops("plan", *arguments, "--profile", "tiny", "--set", "train.device=cpu")
    assert planned.returncode == 2 and error in planned.stderr
    options = ("--profile", "tiny", "--set", "train.device=cpu", "--quiet")
    run = vflops("run", *arguments, *options)
    assert (run.returncode, run.stderr) == (2, planned.stderr)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("automl", "--repeat", 2), "which a run cannot repeat, but repeat is 2"),
        (("automl", "--waves"), "--waves does not apply"),
        ((*TINY[:1], "--ranks", 16, *SHARED), "16 ranks cannot share the 8 channels"),
        ((*TINY[:1], "--ranks", 16, *SHARED[:2]), "cannot be cut into 16 stages"),
    ],
)
def test_nor_is_what_no_machine_could_run(
    vflops: Vflops, arguments: tuple[object, ...], error: str
) -> None:
    described = ("--nodes", 1, "--slots", 16, "--profile", "tiny")
    result = vflops("plan", *arguments, *described)
    assert result.returncode == 2 and error in result.stderr
    precise = ("--set", "train.precision=tf32")
    assert vflops("plan", TINY[0], *described, *precise).returncode == 0  # that one may have it


@pytest.mark.parametrize(
    ("workload", "chosen"),
    [("automl", ("--workers", "2", "--for", "9s")), (TINY[0], ("--models", "2"))],
)
def test_the_next_command_is_the_run_that_was_planned(
    vflops: Vflops, tmp_path: Path, workload: str, chosen: tuple[str, ...]
) -> None:
    (tmp_path / "my file.toml").write_text("[train]\nepochs = 2\n")
    options = {"--ranks": "2", "--seed": "4", "--config": "my file.toml"}
    words = [word for item in options.items() for word in item]
    sets = ["--set", "communication.precision=int8", "--set", "train.batch=64"]
    described = ("--nodes", "1", "--slots", "4", "--on", "slurm")
    given = ("--profile", "tiny", *chosen, *words, *sets)
    result = vflops("plan", workload, *described, *given)
    assert result.returncode == 0, result.stderr
    line = next(line for line in result.stderr.splitlines() if line.startswith("next: "))
    again = shlex.split(line.removeprefix("next: ").rpartition("   (")[0])
    added = ["--on", "slurm", "--nodes", "1", "--set", "launch.ranks_per_node=4"]
    assert again[1:3] == ["run", workload]
    assert sorted(again[3:]) == sorted([*given, *added])


def test_memory_follows_the_mode(vflops: Vflops) -> None:
    described = (*TINY, "--nodes", 1, "--slots", 2, "--ranks", 2)
    whole = planned(vflops, *described)["workloads"][TINY[0]]
    planned_run = planned(vflops, *described, *SHARED[:2])["workloads"][TINY[0]]
    assert (
        whole["memory_rank_bytes"] / 2
        <= planned_run["memory_rank_bytes"]
        < whole["memory_rank_bytes"]
    )
    assert planned_run["memory_rank_holds"].endswith("of its stage, on the rank with most")
    assert planned_run["checkpoint_bytes"] == whole["checkpoint_bytes"]


def test_half_a_description_of_a_machine_is_refused(vflops: Vflops) -> None:
    elsewhere = vflops("plan", *TINY, "--nodes", 4).stderr
    assert "--nodes 4, but the jobs run on this machine" in elsewhere
    assert "--slots 4 without --nodes" in vflops("plan", *TINY, "--slots", 4).stderr


def test_the_nodes_of_slurm_are_those_that_are_up(
    slurm: SlurmBench, vflops: Vflops, tmp_path: Path
) -> None:
    slurm.drain("n3")
    planned_run = planned(vflops, *TINY, "--on", "slurm", "--nodes", 3)
    places = [item["places"] for item in planned_run["placements"]]
    assert places == [[["n1", [0]]], [["n2", [0]]], [["n4", [0]]]]  # a model has a node's cores


def test_gpus_are_the_slots_of_a_node(slurm: SlurmBench, vflops: Vflops, tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text('partition = "gpu"\n')
    on_gpus = (*TINY, "--on", "slurm", "--set", "train.batch=64")
    whole = vflops("plan", *on_gpus, "--nodes", 3)  # the fourth node has another type of GPU
    assert "Sys_scale   24 of 24 slots, 3 of 3 nodes" in whole.stdout
    assert "--models 3 --ranks 8 --on slurm --nodes 3" in " ".join(whole.stderr.split())
    halved = vflops("plan", *on_gpus, "--nodes", 3, "--set", "launch.gpus_per_rank=2")
    assert "Sys_scale   12 of 12 slots, 3 of 3 nodes" in halved.stdout
    one = vflops("plan", *on_gpus)
    assert "1 model of 8 ranks" in one.stdout


@needs_two_cores
def test_the_suite_is_planned_as_it_runs(vflops: Vflops) -> None:
    result = vflops("plan", "--profile", "laptop")
    assert result.returncode == 0, result.stderr
    assert "next: vflops run --profile laptop" in result.stderr
    scales = [line for line in result.stdout.splitlines() if line.startswith("Sys_scale")]
    assert [int(line.split()[1]) for line in scales] == [2, 1, 1]


def test_nodes_limits_a_plan_to_so_many(slurm: SlurmBench, vflops: Vflops) -> None:
    planned_run = planned(vflops, *TINY, "--on", "slurm", "--nodes", 2, "--ranks", 2)
    names = {name for item in planned_run["placements"] for name, _ in item["places"]}
    assert names == {"n1", "n2"}
    slurm.drain("n3")
    refused = vflops("plan", *TINY, "--on", "slurm", "--nodes", 4)
    assert "--nodes 4, but the default partition has 3 that could take a rank" in refused.stderr
