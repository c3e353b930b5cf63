"""A run beside the one whose settings it repeated; the runs are written by hand."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.challenged_runs import CHALLENGE
from tests.support.evidence_runs import concluded
from tests.support.sample_parts import write_system
from tests.support.trained_runs import HandmadeRun, course, job
from vflops.errors import UsageError
from vflops.publish.evidence.archive import archive
from vflops.record.folder import RunFolder
from vflops.record.formats.challenge import ChallengedRun
from vflops.record.formats.job import DataFacts
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.rule import Outcome
from vflops.results.score.scoring import score
from vflops.studies.reproduce import reproduce
from vflops.studies.reproduce.reproduce import (
    RecordedRun,
    compare,
    open_recorded,
    repeated_challenge,
    settings_of,
)
from vflops.studies.reproduce.reproduced_figures import compare_figures
from vflops.studies.reproduce.reproduction import Figure, Reproduction, rows
from vflops.workloads.contract.run_settings import load

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]
Make = Callable[..., RunFolder]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes runs of trainings that reached these qualities, an epoch a training."""

    def run(
        *qualities: float, weights: str | None = None, data: str = "0" * 64, **system: Any
    ) -> RunFolder:
        handmade = HandmadeRun(tmp_path / f"runs-{len(list(tmp_path.iterdir()))}", monkeypatch)
        write_system(handmade.folder)
        if system:
            _set_facts(handmade.folder, system)
        facts = DataFacts(path="/d", synthetic=True, fingerprint=data, train=1000, validation=200)
        handmade.plan(*(job(number, data=facts) for number in range(1, len(qualities) + 1)))
        for number, quality in enumerate(qualities, start=1):
            notes = course(quality)
            for kind, payload in notes:
                if kind == "finished":
                    payload["weights_sha256"] = weights and f"{weights}-{number}"
                if kind == "job":
                    payload |= {"device": "cpu", "deterministic": True}
            handmade.attempt(number, 1000.0 * number, *notes)
        return handmade.folder

    return run


def _set_facts(folder: RunFolder, facts: dict[str, Any]) -> None:
    text = folder.system_file.read_text()
    for name, value in facts.items():
        assert name == "cpu"
        text = text.replace("Test CPU <1>", value)
    folder.system_file.write_text(text)
    SystemRecord.read(folder.system_file)


def compared(old: RunFolder, new: RunFolder) -> Reproduction:
    return compare(RecordedRun(old, ()), new)


def quality(found: Reproduction) -> Figure:
    return next(figure for figure in found.figures if figure.kind == "quality")


def test_the_same_to_the_last_bit(make: Make) -> None:
    found = compared(make(0.85, weights="a"), make(0.85, weights="a"))
    assert (found.same_machine, found.same_software, found.same_data) == (True, True, True)
    assert found.same_bits is True
    assert "bitwise equal" in found.sentences[-1]
    assert {figure.verdict for figure in found.figures} == {"equal"}
    assert found.contradictions == ()


def test_other_weights_on_the_same_stack_are_a_contradiction(make: Make) -> None:
    found = compared(make(0.85, weights="a"), make(0.85, weights="b"))
    assert found.same_bits is False
    assert found.contradictions == (
        "machine, software and data are the same, but the trained weights differ",
    )


def test_other_weights_on_another_machine_are_none(make: Make) -> None:
    found = compared(make(0.85, weights="a"), make(0.86, weights="b", cpu="Other CPU"))
    assert (found.same_machine, found.same_bits, found.contradictions) == (False, None, ())
    assert "on another machine with the same software" in found.sentences[0]
    assert "bitwise equal: machine, software or data differ" in found.sentences[-1]
    assert quality(found).verdict == "cannot tell"
    assert quality(found).difference == pytest.approx(0.01 / 0.85)


def test_other_data_is_said_and_fails(make: Make) -> None:
    found = compared(make(0.85), make(0.85, data="1" * 64))
    assert found.same_data is False
    assert "the data differs from that of the recorded run" in found.contradictions
    assert "The data is not the same, by fingerprint." in found.sentences


@pytest.mark.parametrize(
    ("here", "verdict"), [((0.84, 0.86, 0.85), "within"), ((0.6, 0.61, 0.59), "outside")]
)
def test_a_difference_is_judged_by_the_spread_of_the_record(
    make: Make, here: tuple[float, ...], verdict: str
) -> None:
    """By hand: s = 0.02, t = 4.303, ± 4.303 · 0.02 · √(1/3 + 1/3) = 0.0703 of 0.84."""
    found = compared(make(0.82, 0.84, 0.86), make(*here))
    figure = quality(found)
    assert figure.verdict == verdict
    assert figure.recorded == pytest.approx(0.84)
    assert figure.spread == pytest.approx(4.30265 * 0.02 * (2 / 3) ** 0.5 / 0.84, rel=1e-4)
    assert bool(found.contradictions) == (verdict == "outside")
    row = next(row for row in rows(found) if "accuracy" in row[0])
    assert row[1] == "0.84" and row[4] == f"{verdict} the spread of ± 8.4 %"


def test_the_ceilings_of_both_are_compared(run_folder: RunFolder) -> None:
    found = compared(run_folder, run_folder)
    names = [figure.name for figure in found.figures]
    assert names[0] == "gemm peak fp32" and len(names) == 4  # what was not measured is not in it
    assert found.same_data is None and found.same_bits is None


@pytest.mark.parametrize(
    ("here", "spread", "verdict"),
    [
        (95.0, 0.5, "within"),  # of the record's own spread
        (88.0, 0.01, "outside"),
        (88.0, 0.5, "cannot tell"),  # the difference may be that of the new one
        (10.0, 0.5, "outside"),  # a noisy reproduction is no excuse
    ],
)
def test_a_ceiling_is_judged_by_the_spread_of_the_record(
    run_folder: RunFolder, here: float, spread: float, verdict: str
) -> None:
    recorded = score(Contents(run_folder))
    ceiling = next(each for each in recorded.ceilings if each.value is not None)
    both = [
        recorded.model_copy(
            update={"ceilings": (ceiling.model_copy(update={"value": value, "spread": own}),)}
        )
        for value, own in ((100.0, 0.1), (here, spread))
    ]
    (found,) = compare_figures(*both)
    assert found.verdict == verdict
    assert found.spread == (None if verdict == "cannot tell" else pytest.approx(0.1))


def test_a_machine_that_was_not_quiet_is_said(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any("quiet" in line for line in compared(run_folder, run_folder).sentences)
    loud = Outcome("fail", "others used 42 % of the CPUs")
    monkeypatch.setattr(reproduce, "check_background_load", lambda contents: loud)
    then, here = compared(run_folder, run_folder).sentences[-2:]
    assert then == "The machine was not quiet then: others used 42 % of the CPUs."
    assert here.startswith("The machine was not quiet here: ")


def test_an_archive_is_opened_and_an_altered_run_is_said_to_be(make: Make) -> None:
    folder = concluded(make(0.85))
    with open_recorded(archive(folder)) as recorded:
        assert recorded.folder.record == folder.record and recorded.alterations == ()
    (folder.path / "run.txt").write_text("x")
    with open_recorded(folder.path) as recorded:
        assert "run.txt: added" in compare(recorded, folder).altered[0]


def test_a_strangers_program_data_and_container_are_not_taken_unasked(
    run_folder: RunFolder, tmp_path: Path
) -> None:
    record = run_folder.record
    base = record.settings.model_copy(update={"workloads": {"command": _section()}})
    asked = load(base, None, ["launch.container=docker://evil", f"data={tmp_path / 'gone'}"])
    run = RunFolder(run_folder.path, record.model_copy(update={"settings": asked}))
    with pytest.raises(UsageError, match="author's program: the command sh -c 'rm -rf /tmp/x'"):
        settings_of(run, tmp_path)
    with pytest.raises(UsageError, match="which does not exist here") as error:
        settings_of(run, allow_command=True)
    assert "--data" in str(error.value.hint)
    found = settings_of(run, tmp_path, on="slurm", container="mine.sif", allow_command=True)
    assert found.launch.container == "mine.sif" and found.launch.on == "slurm"
    assert found.workloads["command"]["data"] == str(tmp_path)
    assert settings_of(run, tmp_path, allow_command=True).launch.container is None


def _section() -> dict[str, Any]:
    from vflops.workloads.contract.registry import workload

    section = workload("command").profile("tiny").model_dump(mode="json")
    return {**section, "command": ["sh", "-c", "rm -rf /tmp/x"]}


def test_a_reproduction_names_the_run_that_answered_the_challenge(run_folder: RunFolder) -> None:
    assert repeated_challenge(run_folder) is None
    answered = ChallengedRun(issued=CHALLENGE, number=3)
    record = run_folder.record.model_copy(update={"challenge": answered})
    again = repeated_challenge(RunFolder(run_folder.path, record))
    assert again == answered.model_copy(update={"reproduces": record.id})
    assert again is not None and again.seed == answered.seed
    later = record.model_copy(update={"id": "another", "challenge": again})
    assert repeated_challenge(RunFolder(run_folder.path, later)) == again
