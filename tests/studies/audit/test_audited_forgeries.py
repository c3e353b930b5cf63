"""Forgeries that break no rule: training parts of them again shows what is wrong."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.forged_runs import Forger
from tests.support.forged_times import clocks_times
from tests.support.forgeries import Break, changed, good_runs, in_job
from tests.support.forgery_list import BY_AUDIT
from tests.support.train_runs import planned, run_ranks, start_command, training_run
from vflops.errors import UsageError
from vflops.record.folder import RunFolder, latest
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.evidence.audit_record import (
    AuditedSegment,
    AuditRecord,
    caught_probability,
)
from vflops.results.evidence.manifest import write_manifest
from vflops.studies.audit import auditing
from vflops.studies.audit.auditing import audit, judge_run
from vflops.studies.audit.committed_segments import segments_of
from vflops.studies.audit.drawing import ChosenSegment, draw
from vflops.studies.audit.judging import audited as judged_row

SHORT = (
    "synthetic.train=64",
    "synthetic.validation=40",
    "train.batch=16",
    "train.epochs=3",
    "train.segments=6",
    "train.commit_every=1",
)
"""Twelve steps; a checkpoint is kept after every second one."""
END, STARTS = 12, 6
"""The last step, and the one that a forged part starts after."""
DRAWS = 200
ALL = 99
LISTED = {forgery.name: forgery.verdict for forgery in BY_AUDIT}


@dataclass(frozen=True)
class Trainings:
    """A complete run, and jobs that were trained in the same way."""

    run: Path
    other: Path
    """It went on from weights of another seed after ``STARTS`` steps."""
    dense: Path
    """The same training, which kept every state."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    parent = tmp_path_factory.mktemp("trained")
    process = start_command(parent, *training_run(*SHORT))
    seed = planned(parent / "seed", *SHORT, "train.epochs=2", "seed=2")
    dense = planned(parent / "dense", *SHORT, f"train.segments={END}")
    for folder in (seed, dense):
        run_ranks(folder)
    other = planned(parent / "other", *SHORT)
    begin_with(other, seed)
    run_ranks(other)
    process.communicate()
    run = latest(parent / "runs")
    assert run is not None
    return Trainings(run, *(folder.path / "jobs" / "1" for folder in (other, dense)))


def begin_with(folder: RunFolder, source: RunFolder) -> None:
    """A first attempt that left the state of another training after ``STARTS`` steps."""
    kept = {event.data["step"]: event.data for event in source.history(1).events("checkpoint")}
    with folder.start_attempt(1) as log:
        log.write("checkpoint", **kept[STARTS])
    target = folder.path / "jobs/1/checkpoint"
    target.mkdir()
    for path in (source.path / "jobs/1/checkpoint").glob(f"step-{STARTS:09d}.*"):
        shutil.copyfile(path, target / path.name)


@dataclass(frozen=True)
class Auditor:
    """Audits forged copies of the run."""

    trained: Trainings
    place: Path

    def audit(self, harm: Break, segments: int) -> AuditRecord:
        """The audit of a forged copy, which breaks no rule."""
        record, _ = audit(self.forged(harm), self.place / "audits", count=segments)
        return record

    def forged(self, harm: Break) -> RunFolder:
        """A forged copy, which breaks no rule."""
        copy = Path(shutil.copytree(self.trained.run, self.place / self.trained.run.name))
        forger = Forger(copy)
        harm(forger)
        for name in ("findings.json", "report.html", "manifest.json"):
            (copy / name).unlink()
        folder = forger.sealed()
        write_manifest(folder)
        assert list(check(Contents(folder)).failures) == []
        return folder


@pytest.fixture
def auditor(trained: Trainings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Auditor:
    here = SystemRecord.read(RunFolder.open(trained.run).system_file)
    monkeypatch.setattr(auditing, "gather", lambda path: here)  # it takes longer than an audit
    return Auditor(trained, tmp_path)


def verdicts(record: AuditRecord) -> dict[tuple[int, int], str]:
    """The verdicts of all parts, by their first and last step."""
    return {(row.first, row.last): row.verdict for row in record.segments}


def invented(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def never_trained(run: Forger) -> None:
    """Hashes of states that never existed."""
    for line in (*run.lines("commitment"), *run.lines("checkpoint")):
        line["data"]["sha256"] = invented(line["data"]["step"])
    changed("finished", weights_sha256=invented("weights"))(run)


def better_quality(run: Forger) -> None:
    run.lines("evaluation")[-1]["data"]["quality"] += 0.3


def without_states(run: Forger) -> None:
    """The first checkpoint is missing, and the second one is another file."""
    folder = run.folder.path / "jobs" / "1" / "checkpoint"
    (folder / "step-000000002.state").unlink()
    with (folder / "step-000000004.state").open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize(
    ("name", "harm", "segments", "words"),
    [
        (
            "a model or an ensemble that was never trained",
            never_trained,
            0,
            "job 1, steps 0 to 2: the state after step 0 is another one: the log has ",
        ),
        (
            "a better quality of the trained model",
            better_quality,
            0,
            f"the quality after step {END} is ",
        ),
        (
            "checkpoints that were deleted or changed",
            without_states,
            ALL,
            "its checkpoint step-000000002.state is missing",
        ),
    ],
)
def test_training_again_shows_the_forgery(
    auditor: Auditor, name: str, harm: Break, segments: int, words: str
) -> None:
    record = auditor.audit(harm, segments)
    assert record.verdict == LISTED[name]
    assert words in " ".join([record.detail, *(row.detail for row in record.segments)])


def test_the_weights_of_another_training_do_not_follow_from_the_step_before(
    auditor: Auditor,
) -> None:
    """The forged end agrees with itself: the smuggled model has the quality that is recorded."""

    def smuggled(run: Forger) -> None:
        logs = [map(json.loads, log.open()) for log in auditor.trained.other.glob("*/events.jsonl")]
        theirs = {
            (line["kind"], line["data"].get("step")): line["data"] for log in logs for line in log
        }
        for line in run.logs[run.attempt(1) / "events.jsonl"]:
            data = line["data"]
            if data.get("step", 0) >= STARTS:
                source = theirs[line["kind"], data["step"]]
                names = ("sha256", "size_bytes", "loss", "quality", "weights_sha256")
                data.update({name: source[name] for name in names if name in data})
        for state in (auditor.trained.other / "checkpoint").glob("*.state"):
            shutil.copyfile(state, run.folder.path / "jobs/1/checkpoint" / state.name)

    folder = auditor.forged(smuggled)
    record, _ = audit(folder, auditor.place / "audits", count=ALL)
    found = verdicts(record)
    assert record.verdict == LISTED["the weights of another training from a step on"]
    assert [found[part] for part in ((0, 2), (2, 4), (END, END))] == ["same bits"] * 3
    assert [part for part in found if found[part] == "differs"] == [(STARTS - 2, STARTS)]
    contents = Contents(folder)
    pool = [part.steps for part in draw(contents, 0, "").pool]
    assert len(pool) >= 3
    for count in (1, 2, ALL):
        odds = caught_probability(pool, count, forged=2)
        spread = math.sqrt(odds * (1 - odds) / DRAWS)
        assert abs(share_found(contents, record, count) - odds) <= 4 * spread


def share_found(contents: Contents, record: AuditRecord, count: int) -> float:
    """In how many of ``DRAWS`` audits a forgery is found, by the outcome of each part."""
    rows = {(row.first, row.last): row for row in record.segments}
    found = 0
    for nonce in range(DRAWS):
        chosen = [item.segment for item in draw(contents, count, str(nonce)).chosen]
        audited = [rows[part.first, part.last] for part in chosen]
        found += judge_run(audited, same_machine=False)[0] != "confirmed"
    return found / DRAWS


def with_start(state: Callable[[Path], bytes], dense: Path) -> Break:
    """Another file in place of the checkpoint after ``STARTS`` steps, to which the log commits."""

    def forge(run: Forger) -> None:
        name = f"step-{STARTS:09d}.state"
        content = state(dense / "checkpoint")
        path = run.folder.path / "jobs/1/checkpoint" / name
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        for line in run.lines("checkpoint"):
            if line["data"]["step"] == STARTS:
                line["data"].update(sha256=digest, size_bytes=len(content))

    return forge


@pytest.mark.parametrize(
    ("name", "state", "words"),
    [
        (
            "a checkpoint that holds the state after a later step",
            lambda kept: (kept / f"step-{STARTS + 1:09d}.state").read_bytes(),
            f"its state is the one after step {STARTS + 1}",
        ),
        ("a checkpoint that cannot be read", lambda kept: b"x" * 1000, "is not a state file"),
    ],
)
def test_a_part_is_never_trained_from_another_state(
    auditor: Auditor, name: str, state: Callable[[Path], bytes], words: str
) -> None:
    """One step of the forged part would lead to the committed state at its end."""
    folder = auditor.forged(with_start(state, auditor.trained.dense))
    record, _ = audit(folder, auditor.place / "audits", count=ALL)
    assert record.verdict == LISTED[name]
    found = verdicts(record)
    assert (found[STARTS - 2, STARTS], found[STARTS, STARTS + 2]) == ("differs", "not audited")
    row = next(row for row in record.segments if row.first == STARTS)
    assert words in row.detail
    assert row.steps == 0
    assert record.steps_audited == END - 2
    assert share_found(Contents(folder), record, ALL) == 1.0


def other_contents(run: Forger) -> None:
    """Other samples behind the same index."""
    hashes = {name: invented(name) for name in ("train", "validation")}
    in_job("data", contents=hashes)(run)
    for line in run.lines("data-read"):
        for name, split in line["data"]["splits"].items():
            split["sha256"] = hashes[name]


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (in_job("data", fingerprint=invented("data")), "is not that of the run"),
        (other_contents, "content"),
    ],
    ids=["fingerprint", "contents"],
)
def test_an_audit_refuses_other_data(auditor: Auditor, harm: Break, words: str) -> None:
    assert LISTED["other data, with the hashes of that data"] is None
    with pytest.raises(UsageError, match=words):
        auditor.audit(harm, 0)


def test_times_are_compared_although_no_progress_is_reported(auditor: Auditor) -> None:
    def hurried(run: Forger) -> None:
        clocks_times(0.2)(run)
        run.drop(lambda line: line["kind"] != "progress")

    record = auditor.audit(hurried, ALL)
    name = "times × 0.2 without progress events"
    assert record.verdict == LISTED[name]
    assert {row.verdict for row in record.segments} == {"same bits"}
    assert record.speed_ratio is not None
    assert record.speed_ratio > 1.5
    assert all(row.samples_per_s_recorded for row in record.segments if row.first < row.last)


def test_states_without_times_are_not_confirmed(auditor: Auditor) -> None:
    def timeless(run: Forger) -> None:
        for line in (*run.lines("commitment"), *run.lines("checkpoint")):
            del line["data"]["phases"]

    record = auditor.audit(timeless, 0)
    assert record.verdict == "not conclusive"
    assert "does not say how long its steps took" in record.detail


def test_clocks_that_are_too_fast_are_not_confirmed_on_the_same_machine(tmp_path: Path) -> None:
    """Speeds are compared as they are recorded: no time is measured here."""
    good = good_runs(tmp_path)("one model")
    fast = Path(shutil.copytree(good, tmp_path / "fast" / good.name))
    forger = Forger(fast)
    clocks_times(0.85)(forger)
    forger.sealed()
    true, claimed = _row(good), _row(fast)
    found = {"samples_per_s_here": true.samples_per_s_recorded, "seconds_here": 3600.0}
    rows = [claimed.model_copy(update=found)]
    verdict, detail, ratio = judge_run(rows, same_machine=True)
    assert verdict == LISTED["clocks × 0.85"]
    assert ratio == pytest.approx(1 / 0.85, rel=1e-3)
    assert "the run claims 1.18 × the speed that this machine of the same kind has" in detail
    assert judge_run(rows, same_machine=False)[0] == "confirmed"
    honest = [true.model_copy(update=found)]
    assert judge_run(honest, same_machine=True)[0] == "confirmed"


def _row(path: Path) -> AuditedSegment:
    """The first training of a run as one part that agrees, with its recorded speed."""
    job = Contents(RunFolder.open(path)).training_jobs[0]
    (segment,) = segments_of(job)
    return judged_row(job, ChosenSegment(segment, "first"), None, "same bits", "")
