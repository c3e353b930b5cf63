"""A command as a workload: what it is told, what it may say, and how it ends."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.command_runs import GOOD, run, scored, script, settings
from vflops.config.settings import Settings
from vflops.errors import RunFailed, UsageError
from vflops.machine.system.cpu_share import OMP, cpu_threads
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.job import Goal
from vflops.record.formats.job_events import JobStarted
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.figures import training_figures
from vflops.results.score import figure_text
from vflops.run import pipeline
from vflops.run.observer import RunObserver
from vflops.testing.conventions import sample_graph
from vflops.testing.specs import SpecConformance
from vflops.workloads.command import data_hash
from vflops.workloads.command.data_hash import hash_data
from vflops.workloads.command.settings import CommandSettings
from vflops.workloads.command.workload import Command
from vflops.workloads.contract.registry import workload
from vflops.workloads.contract.run_settings import load, profile


class TestConformance(SpecConformance):
    spec = workload("command")


def test_a_run_is_scored_by_what_it_reports(tmp_path: Path) -> None:
    score = scored(run(tmp_path, GOOD, quality="F1", exponent=2, ops_source="a paper"))
    assert score.complete
    assert (score.samples_trained, score.samples_evaluated, score.epochs) == (100, 40, 2.0)
    assert score.work is not None and score.speed is not None
    assert (score.work.source, score.work.detail) == ("declared", "a paper")
    assert score.speed.ops_training == 100 * 3000
    assert score.quality.name == "F1"
    assert score.quality.penalty == pytest.approx((0.9 / 0.8) ** 2)
    assert score.quality.epochs_to_quality == 2.0
    assert score.mfu.value is None and score.mfu.reason
    assert sum(score.phases.values()) == pytest.approx(score.wall_s)


def test_lower_can_be_better(tmp_path: Path) -> None:
    own = {"quality": "perplexity", "bounds": [0, math.inf]}
    folder = run(tmp_path, GOOD, better="lower", target=0.75, **own)
    score = scored(folder)
    assert not {"schema", "goal"} & {finding.rule for finding in check(Contents(folder)).failures}
    assert score.quality.epochs_to_quality == 1.2
    assert score.quality.penalty == pytest.approx(0.75 / 0.9)


def test_an_error_of_zero_reaches_the_target_without_a_quality_factor(tmp_path: Path) -> None:
    folder = run(tmp_path, GOOD.replace("0.9", "0"), quality="error", better="lower", target=0.75)
    score = scored(folder)
    assert score.complete and score.quality.is_met and score.speed is not None
    assert (score.quality.achieved, score.quality.penalty) == (0, None)
    assert score.speed.vflops is None and score.speed.vflops_capped == score.speed.flops
    named = figure_text.factor(score.quality)
    assert named == "1: the target was reached (unbounded for a value of 0 as published)"
    figures = training_figures(score)
    assert figures["vflops_published"].value is None
    findings = check(Contents(folder)).findings
    assert [finding.verdict for finding in findings if finding.rule == "goal"] == ["pass"]


def test_a_quality_of_an_unknown_name_needs_bounds(tmp_path: Path) -> None:
    command = script(tmp_path, GOOD)
    for name in ("quality", "perplexity"):
        unbounded = settings(command, quality=name, bounds=None).workloads["command"]
        with pytest.raises(UsageError, match=f"bounds of the quality '{name}'") as caught:
            prepared(unbounded)
        assert "--set 'command.bounds=[0, 1]'" in str(caught.value.hint)
    prepared(settings(command, quality="F1", bounds=None).workloads["command"])


def test_open_ends_of_bounds_are_recorded_and_given_again() -> None:
    base = profile("tiny", ["command"])
    for text in ("[1, inf]", '[1, "inf"]'):
        loaded = load(base, None, [f"command.bounds={text}"])
        assert loaded.workloads["command"]["bounds"] == [1.0, "inf"]
        again = CommandSettings.model_validate(loaded.workloads["command"])
        assert again.bounds == (1.0, math.inf)
    assert CommandSettings(bounds=(None, 3)).bounds == (-math.inf, 3.0)
    goal = Goal(quality="loss", better="lower", target=1, exponent=1, bounds=(0, math.inf))
    assert Goal.model_validate_json(goal.model_dump_json()) == goal


def prepared(section: dict[str, Any]) -> None:
    Command.prepare_data(CommandSettings.model_validate(section), lambda *_: None)


def test_a_graph_is_counted_by_the_rules(tmp_path: Path) -> None:
    graph = sample_graph(batch=4)
    graph.write(tmp_path / "graph.json")
    from_graph = {"ops_forward": None, "ops_total": None, "graph": str(tmp_path / "graph.json")}
    folder = run(tmp_path, GOOD, **from_graph)
    work = scored(folder).work
    assert work is not None and (work.source, work.rules) == ("declared graph", "executed")
    assert work.ops_executed == work.ops_total > 0
    assert (folder.path / "graphs" / "command.json").is_file()


@pytest.mark.parametrize("given", [None, "1", "4096"])
def test_the_recorded_threads_are_those_the_command_is_told_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    monkeypatch.delenv(OMP, raising=False)
    if given is not None:
        monkeypatch.setenv(OMP, given)
    tell = f'open(r"{tmp_path}/told", "w").write(os.environ["{OMP}"])\n'
    folder = run(tmp_path, tell + GOOD, train={"device": "cpu"})
    started = folder.history().events("job", job=1)[-1].payload(JobStarted)
    assert int((tmp_path / "told").read_text()) == started.threads == cpu_threads().count


def test_every_rank_is_told_who_it_is(tmp_path: Path) -> None:
    tell = f"""
keep = {{k: v for k, v in os.environ.items() if k.startswith(("VFLOPS_", "MASTER_")) or k in
        ("RANK", "WORLD_SIZE", "LOCAL_RANK")}}
open(r"{tmp_path}/told-" + os.environ["RANK"], "w").write(json.dumps(keep))
if os.environ["RANK"] != "0":
    say(samples=10**6, loss=float("nan"))  # only the first rank counts
    sys.exit(0)
"""
    folder = run(tmp_path, tell + GOOD, train={"ranks": 2, "epochs": 7}, data=str(tmp_path))
    first, second = (json.loads((tmp_path / f"told-{rank}").read_text()) for rank in (0, 1))
    assert scored(folder).samples_trained == 100
    job = folder.path / "jobs" / "1"
    for rank, told in enumerate((first, second)):
        expected = {
            "VFLOPS_SEED": "1",
            "VFLOPS_JOB": "1",
            "VFLOPS_RANK": str(rank),
            "VFLOPS_RANKS": "2",
            "VFLOPS_LOCAL_RANK": str(rank),
            "VFLOPS_EPOCHS": "7",
            "VFLOPS_BATCH": "10",
            "VFLOPS_DATA": str(tmp_path),
            "VFLOPS_TARGET": "0.8",
            "VFLOPS_INDICES": str(job / "indices.npy"),
            "VFLOPS_CHECKPOINT": str(job / "checkpoint"),
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "LOCAL_RANK": str(rank),
            "MASTER_ADDR": "127.0.0.1",
        }
        assert {name: told.get(name) for name in expected} == expected
    assert first["MASTER_PORT"] == second["MASTER_PORT"]
    indices = np.load(job / "indices.npy", allow_pickle=False)
    assert indices.dtype == np.int64
    assert indices.tolist() == list(range(50))


def test_time_goes_where_the_script_says(tmp_path: Path) -> None:
    text = """
time.sleep(0.3)
say(phase="compilation"); time.sleep(0.4)
say(phase="training"); time.sleep(0.5)
say(samples=50)
say(phase="evaluation"); time.sleep(0.6)
say(samples=50, quality=1, evaluated=5)
time.sleep(0.7)
"""
    phases = scored(run(tmp_path, text)).phases
    # Half of each: a busy machine reads a line late, and its time goes to the phase before.
    assert phases["start-up"] > 0.15
    assert phases["compilation"] > 0.2
    assert phases["evaluation"] > 0.3
    assert phases["training"] > 0.85, "after an evaluation it is training again"


def test_training_that_was_not_announced_is_no_start_up(tmp_path: Path) -> None:
    text = "time.sleep(1)\nsay(samples=50)\nsay(samples=50, quality=1, evaluated=5)"
    assert scored(run(tmp_path, text)).phases["training"] > 0.99


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('lost', file=sys.stderr); sys.exit(5)", "ended with code 5.*lost"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ("print('hello')", "without reporting any samples"),
        ("say(samples=5, loss=1)", "without reporting a quality"),
        ("say(samples=9, loss=1)\nsay(samples=5, loss=1)\ntime.sleep(60)", "line 2.*fell from 9"),
        ("say(samples=9, loss=float('nan'))\ntime.sleep(60)", "the loss is nan after 9 samples"),
        ("print({'samples': 5})\ntime.sleep(60)", r"line 1 .*not a JSON.*\{'samples': 5\}"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(RunFailed, match=re.compile(message, re.DOTALL)):
        run(tmp_path, text)
    folder = latest(tmp_path / "runs")
    assert folder is not None
    reason = RunFolder.open(folder).history().state.reason
    assert reason is not None and reason.startswith("it failed")


@pytest.mark.parametrize(
    ("command", "changes", "message"),
    [
        (None, {}, r"needs command \(what to run\)\n"),
        (
            None,
            {"samples": None, "target": None, "ops_forward": None, "ops_total": None},
            r"needs command .*, samples .*, target .*, the operations per sample",
        ),
        ("no-such-program-anywhere x.py", {}, "not found on the PATH"),
        ("{python} -c pass", {"samples": None}, "needs samples"),
        ("{python} -c pass", {"target": None}, "needs target"),
        ("{python} -c pass", {"ops_forward": None, "ops_total": None}, "operations per sample"),
        (
            "{python} -c pass",
            {"ops_forward": None, "ops_total": None, "graph": "absent.json"},
            "absent.json does not exist",
        ),
        ("{python} nowhere.py", {}, "names nowhere.py, which does not exist"),
        ("{python} -c pass", {"data": "/no/such/data"}, "/no/such/data does not exist"),
    ],
)
def test_a_wrong_command_makes_no_folder(
    tmp_path: Path, command: str | None, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        pipeline.start(tmp_path / "runs", "command", settings(command, **changes), RunObserver())
    assert caught.value.hint
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ops_total": None}, "belong together"),
        ({"graph": "g.json"}, "give either"),
        ({"ops_total": 10}, "ops_total 10"),
        ({"exponent": 0}, "exponent"),
        ({"target": -1.0}, "target"),
        ({"better": "sideways"}, "better"),
        ({"precision": "fp12"}, "precision"),
    ],
)
def test_settings_that_contradict_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settings("{python} -c pass", **changes)


def test_a_command_is_split_as_a_shell_does() -> None:
    section = settings("{python} 'my script.py' --rate 0.1").workloads["command"]
    assert section["command"] == ["{python}", "my script.py", "--rate", "0.1"]


def test_the_ceilings_follow_the_precision() -> None:
    chosen: Settings = settings("{python} -c pass", precision="mixed-bf16")
    assert chosen.workloads["command"]["train"]["precision"] == "mixed-bf16"


def test_data_that_is_not_named_is_unknown_and_not_synthetic(tmp_path: Path) -> None:
    folder = run(tmp_path, GOOD)
    score = scored(folder)
    assert score.synthetic is None
    assert figure_text.data(score).startswith("unknown data: the command reads its own")
    findings = {one.rule: one for one in check(Contents(folder)).findings}
    for rule in ("synthetic", "data"):
        assert findings[rule].verdict == "not applicable"
        assert "unknown" in findings[rule].evidence
    assert findings["leaks"].verdict == "not applicable"


def test_data_that_is_named_is_hashed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "below").mkdir(parents=True)
    (data / "below" / "a.bin").write_bytes(b"one")
    shown: list[tuple[str, int, int]] = []
    first = hash_data(data, lambda *progress: shown.append(progress))
    assert first.covers == "contents of 1 file, 3.00 B" and shown == [("hashing the data", 3, 3)]
    (data / "below" / "a.bin").write_bytes(b"two")
    assert hash_data(data, lambda *progress: None).sha256 != first.sha256
    chosen = CommandSettings.model_validate(
        settings(script(tmp_path, GOOD), data=str(data)).workloads["command"]
    )
    before = Command.prepare_data(chosen, lambda *progress: None)
    (data / "below" / "a.bin").write_bytes(b"three")
    after = Command.prepare_data(chosen, lambda *progress: None)
    assert before.synthetic is after.synthetic is False
    assert before.fingerprint != after.fingerprint


def test_large_data_is_hashed_by_names_and_sizes_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_hash, "_MAX_HASHED_BYTES", 2)
    (tmp_path / "a.bin").write_bytes(b"one")
    assert hash_data(tmp_path, lambda *progress: None).covers == "names and sizes of 1 file, 3.00 B"
