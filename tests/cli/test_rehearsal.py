"""Rehearsals as a user starts them: more ranks than cores, and several nodes on one machine."""

from __future__ import annotations

import csv
import io
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job_events import JobStarted, RanksRehearsed
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score

SMALL = ("train.epochs=1", "train.warmup_epochs=0", "count.models=[]")
TINY = ("image-classification", "--profile", "tiny")
CHEAP = tuple(word for item in SMALL for word in ("--set", item))


def vflops(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a folder, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "vflops", *map(str, words)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=570,
        check=False,
    )


def rehearse(folder: Path, *words: object) -> tuple[RunFolder, str]:
    """Rehearse an image classification; return its run and what the command says."""
    done = vflops(folder, "run", *TINY, *CHEAP, "--rehearse", *words)
    assert done.returncode == 0, done.stderr + done.stdout
    run = latest(folder / "runs")
    assert run is not None
    return RunFolder.open(run), done.stderr + done.stdout


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    """A model of 8 ranks on the cores of this machine."""
    return rehearse(tmp_path_factory.mktemp("eight"), "--ranks", 8)


def test_eight_ranks_train_on_the_cores_of_a_laptop(eight: tuple[RunFolder, str]) -> None:
    folder, said = eight
    contents = Contents(folder)
    (job,) = contents.training_jobs
    events = {event.kind: event for event in job.logs[0].events}
    started = events["job"].payload(JobStarted)
    assert started.ranks == len(started.places) == 8
    assert started.rehearsal
    peaks = events["rehearsed"].payload(RanksRehearsed)
    assert len(peaks.peak_bytes) == 8
    assert 0 < max(peaks.peak_bytes) < peaks.device_bytes
    first = next(line for line in said.splitlines() if not line.startswith(("run ", "time ")))
    assert first.startswith("rehearsal: 8 ranks on 1 node of 8 ranks share")
    assert "no score" in first
    assert "rehearsal: ranks shared devices" in said
    assert "VFLOPS" not in said
    assert "memory  a rank needs up to" in said
    (step,) = (line for line in said.splitlines() if line.startswith("next: "))
    words = shlex.split(step.removeprefix("next: ").rpartition("   (")[0])
    # The batch of the profile is too small for 8 ranks, which refuses the real run as it is.
    typed = ["--ranks", "8", "--set", "train.epochs=1", "--set", "train.warmup_epochs=0.0"]
    assert sorted(words[5:]) == sorted([*typed, "--set", "train.batch=64"])
    refused = "the real run would be refused: image-classification with profile tiny has a batch"
    assert said.count(refused) == 2  # before it starts, and beside the rule
    assert refused in folder.report_file.read_text()


def test_it_has_figures_but_no_score_and_is_never_valid(eight: tuple[RunFolder, str]) -> None:
    contents = Contents(eight[0])
    scored = score(contents)
    (training,) = scored.trainings
    assert scored.rehearsal
    assert training.speed is not None
    assert training.speed.flops > 0
    assert (training.speed.vflops, training.speed.vflops_capped) == (None, None)
    failed = {finding.rule: finding.evidence for finding in check(contents).failures}
    assert "rehearsal" in failed
    assert "devices" not in failed
    report = eight[0].report_file.read_text()
    assert '<strong class="badge">Rehearsal:</strong>' in report
    assert "rehearsal: no score" in report
    assert "VFLOPS" not in report.partition("<body")[2].partition("<h2")[0]
    done = vflops(eight[0].path.parent, "check", eight[0].path)
    assert done.returncode == 1
    assert "rehearsal" in done.stdout


def test_every_export_marks_it_or_refuses_it(eight: tuple[RunFolder, str], tmp_path: Path) -> None:
    run = eight[0].path
    (row,) = csv.DictReader(io.StringIO(vflops(tmp_path, "export", "csv", run).stdout))
    assert row["rehearsal"] == "yes"
    assert row["FLOPS [FLOPS]"]
    assert not row["VFLOPS [FLOPS]"]
    series = vflops(tmp_path, "export", "csv", run, "--series").stdout.splitlines()
    assert all(line.startswith(f"{eight[0].record.id} (rehearsal),") for line in series[1:])
    (exported,) = json.loads(vflops(tmp_path, "export", "json", run).stdout)["runs"]
    assert exported["score"]["rehearsal"] is True
    metrics = vflops(tmp_path, "export", "openmetrics", run).stdout.splitlines()
    samples = [line for line in metrics if not line.startswith("#")]
    assert all('rehearsal="yes"' in line for line in samples)
    assert not any("valid_flops" in line for line in samples)
    refused = vflops(tmp_path, "export", "mllog", run)
    assert refused.returncode == 2
    assert "is a rehearsal" in refused.stderr
    assert not (tmp_path / "mlperf").exists()


def test_nothing_is_accepted_ranked_compared_or_predicted_by_it(
    eight: tuple[RunFolder, str], tmp_path: Path
) -> None:
    run = eight[0].path
    written = vflops(tmp_path, "accept", "--write", tmp_path / "accept.toml", run)
    assert written.returncode == 2
    assert "rule rehearsal is not met" in written.stderr
    listed = vflops(tmp_path, "ranking", run.parent, "--site", tmp_path / "site", "--json")
    performance = json.loads(listed.stdout)["performance"]
    (unranked,) = performance["not_ranked"]
    assert any(reason.startswith("rule rehearsal: ") for reason in unranked["reasons"])
    assert performance["lists"] == []
    for words in (("predict", run), ("plan", *TINY, "--like", run)):
        refused = vflops(tmp_path, *words)
        assert refused.returncode == 2, refused.stdout
        assert "is a rehearsal" in " ".join(refused.stderr.split())
    past = vflops(tmp_path, "history", run.parent)
    assert "left out" in past.stdout
    assert "a rehearsal" in past.stdout


def test_an_ensemble_of_two_nodes_is_acted_out_on_this_machine(tmp_path: Path) -> None:
    folder, said = rehearse(tmp_path, "--nodes", 2, "--ranks", 2)
    contents = Contents(folder)
    assert folder.record.settings.launch.ranks_per_node == 2
    assert [job.record.ranks for job in contents.training_jobs] == [2, 2]
    scored = score(contents)
    (ensemble,) = scored.ensembles
    assert ensemble.flops
    assert (ensemble.vflops, ensemble.vflops_capped) == (None, None)
    assert "\nrehearsal: 4 ranks on 2 nodes of 2 ranks share" in said
    (step,) = (line for line in said.splitlines() if line.startswith("next: "))
    assert "--nodes 2" in step and "--on slurm" in step
    assert "ranks_per_node" not in step
    assert "micro" not in step
    compared = vflops(tmp_path, "compare", folder.path, folder.path)
    assert compared.returncode == 2  # a run is no repeat of itself


def test_a_model_that_spans_nodes_sends_what_it_would_between_them(tmp_path: Path) -> None:
    hierarchical = ("--set", "train.communication.mode=hierarchical")
    folder, _ = rehearse(tmp_path, "--nodes", 2, "--ranks", 4, "--models", 1, *hierarchical)
    (job,) = Contents(folder).training_jobs
    (exchange,) = (event.data for event in job.logs[0].events if event.kind == "exchange")
    assert (exchange["ranks"], exchange["near"]) == (4, 2)
    assert exchange["bytes_far"] > 0
    failed = {finding.rule for finding in check(Contents(folder)).failures}
    assert failed <= {"rehearsal", "quiet", "stolen"}


def test_512_ranks_are_planned_as_those_of_the_cluster(tmp_path: Path) -> None:
    layout = ("plan", *TINY, "--nodes", 64, "--ranks", 8, "--set", "train.batch=64", "--json")
    real = vflops(tmp_path, *layout, "--slots", 8)
    rehearsed = vflops(tmp_path, *layout, "--rehearse")
    assert rehearsed.returncode == 0, rehearsed.stderr
    plans = [json.loads(done.stdout) for done in (real, rehearsed)]
    assert [planned.pop("rehearsal") for planned in plans] == [False, True]
    for planned in plans:  # it names the command of a short run, which has other options
        del planned["workloads"][TINY[0]]["time_source"]
    assert plans[0] == plans[1]
    assert len(plans[1]["placements"]) == 64
    assert "rehearsal: 512 ranks on 64 nodes of 8 ranks share" in rehearsed.stderr
    assert not (tmp_path / "runs").exists()


def test_a_plan_says_what_the_real_run_would_refuse(tmp_path: Path) -> None:
    layout = ("plan", *TINY, "--nodes", 64, "--ranks", 8)
    rehearsed = vflops(tmp_path, *layout, "--rehearse")
    real = vflops(tmp_path, *layout, "--slots", 8)
    assert (rehearsed.returncode, real.returncode) == (0, 2)
    reason = "8 ranks leave 4 samples a rank, fewer than 8"
    assert reason in real.stderr
    (warning,) = (line for line in rehearsed.stderr.splitlines() if line.startswith("warning: "))
    assert warning.startswith("warning: the real run would be refused: ") and reason in warning


@pytest.mark.parametrize("words", [("--ranks", 64), ("--nodes", 2)])
def test_what_does_not_fit_is_still_refused_without_a_rehearsal(
    tmp_path: Path, words: tuple[object, ...]
) -> None:
    refused = vflops(tmp_path, "plan", *TINY, *words)
    assert refused.returncode == 2
