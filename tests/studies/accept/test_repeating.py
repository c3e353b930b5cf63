"""The task of a reference is repeated until every figure is decided, and not longer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.accept_runs import IC, THROUGHPUT, only, reference, repeats, seeded
from tests.support.dated_runs import Dated
from vflops.config.settings import Settings
from vflops.errors import UsageError
from vflops.record.folder import RunFolder
from vflops.run.observer import RunObserver
from vflops.studies.accept.reference import Judgement, Reference
from vflops.studies.accept.repeating import RepeatedTask


class Machine:
    """Runs that take a given time each; stands for the pipeline."""

    def __init__(self, *slower: float, quality: float = 0.88) -> None:
        self.slower = slower
        self.quality = quality
        self.seeds: list[int] = []
        self.said: list[str] = []

    def start(
        self, parent: Path, workload: str, settings: Settings, watch: RunObserver
    ) -> RunFolder:
        time = self.slower[len(self.seeds) % len(self.slower)]
        self.seeds.append(settings.seed)
        wanted = Dated(len(self.seeds), (time,), seed=settings.seed, quality=self.quality)
        return seeded(parent, replace(wanted, name=f"r{len(self.seeds)}"))

    def conclude(self, folder: RunFolder, watch: RunObserver) -> None:
        for path in folder.result_files[1:3]:
            path.touch()
        folder.manifest_file.touch()

    def resume(self, folder: RunFolder, watch: RunObserver) -> None:
        raise AssertionError("no run was interrupted")


def outcome(
    folder: Path, made: Reference, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.setattr("vflops.run.continued.pipeline", machine)
    monkeypatch.setattr(
        "vflops.studies.accept.runs_under_test.check", lambda contents: SimpleNamespace(failures=[])
    )
    task = RepeatedTask.create(folder, made)
    return task.run(RunObserver(step=machine.said.append))


@pytest.fixture
def made(tmp_path: Path) -> Reference:
    return only(reference(*repeats(tmp_path / "good", 1.0)), THROUGHPUT, tolerance=0.035)


def test_a_clear_case_takes_the_first_repeats_with_other_seeds(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1.0, 1.001, 0.999)
    assert outcome(tmp_path / "t", made, machine, monkeypatch).verdict == "accepted"
    assert machine.seeds == [1, 2, 3]
    again = Machine(5.0)  # the same command again: nothing is left to run
    assert outcome(tmp_path / "t", made, again, monkeypatch).verdict == "accepted"
    assert again.seeds == []


def test_the_computed_number_of_repeats_is_run_and_said(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1.0, 1.015, 1.03, 1.015)  # by hand: the fourth decides
    acceptance = outcome(tmp_path / "t", made, machine, monkeypatch)
    assert (acceptance.verdict, machine.seeds) == ("accepted", [1, 2, 3, 4])
    said = " ".join(machine.said)
    assert "1 figure undecided after 3 repeats: 1 more" in said and THROUGHPUT in said
    assert "repeat 4 of 4" in said


def test_the_largest_number_of_repeats_is_a_cap(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1.02, 1.035, 1.05)
    acceptance = outcome(tmp_path / "t", made, machine, monkeypatch)
    assert acceptance.verdict == "undecided"
    assert acceptance.needed_repeats is None or acceptance.needed_repeats > 10
    assert machine.seeds == [1, 2, 3]  # more than max_repeats would be needed: none is run


def test_a_rejected_machine_is_not_run_again(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1.2, 1.201, 1.199)
    assert outcome(tmp_path / "t", made, machine, monkeypatch).verdict == "rejected"
    assert machine.seeds == [1, 2, 3]


def test_the_test_stops_at_the_first_run_that_is_not_valid(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(1.0)
    monkeypatch.setattr("vflops.run.continued.pipeline", machine)
    acceptance = RepeatedTask.create(tmp_path / "t", made).run(RunObserver())
    # its findings, report and manifest are empty files here, which breaks rules
    assert (acceptance.verdict, machine.seeds) == ("incomplete", [1])
    assert "not valid" in acceptance.runs[0].faults[0]


def test_the_test_stops_after_one_run_if_a_figure_is_missing(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmeasured = made.figure[0].model_copy(update={"name": "memory.triad"})
    machine = Machine(1.0)
    changed = made.model_copy(update={"figure": (unmeasured, *made.figure)})
    acceptance = outcome(tmp_path / "t", changed, machine, monkeypatch)
    assert (acceptance.verdict, machine.seeds) == ("incomplete", [1])


def test_a_task_that_fills_the_nodes_has_a_model_per_slot(
    tmp_path: Path, made: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vflops.launch.placement import Node

    monkeypatch.setattr(
        "vflops.launch.nodes.usable_nodes", lambda *facts: [Node("a", 4), Node("b", 4)]
    )
    filled = made.task.model_copy(update={"fill_nodes": True})
    figure = made.figure[0].model_copy(update={"name": f"{IC}.model.throughput"})
    changed = made.model_copy(
        update={"task": filled, "judgement": Judgement(nodes=2), "figure": (figure,)}
    )
    task = RepeatedTask.create(tmp_path, changed)
    assert task.settings.workloads["image-classification"]["models"] == 4  # of 2 ranks each
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(UsageError, match="fill_nodes = true needs known nodes"):
        RepeatedTask.create(tmp_path, changed, on="slurm")
