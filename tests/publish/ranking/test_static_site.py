"""A ranking from folders: who ranks, who does not and why, and what is read again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ranking_runs import REAL, REAL_EPOCHS, TASK, Submitted, submit
from tests.support.sample_parts import Vflops
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.errors import RunFailed, UsageError
from vflops.publish.evidence.archive import archive
from vflops.publish.evidence.sign_run import allowed_line, sign_run
from vflops.publish.ranking.judge import TrustedKeys
from vflops.publish.ranking.static_site import Built, add, build
from vflops.publish.ranking.submission_folders import find
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.evidence.manifest import write_manifest
from vflops.results.score.scoring import score

FAST = Submitted(quality=0.92)
SLOW = Submitted(id="20260202T000000Z-image-classification-000001", quality=0.77)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def rebuilt(tmp_path: Path, runs: Path) -> Callable[[], Built]:
    return lambda: build([runs], tmp_path / "site")


def why(built: Built) -> list[str]:
    return ["; ".join(each.reasons) for each in built.ranking.unranked]


def test_the_better_run_is_first_with_the_figures_of_its_score(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    submit(runs / "uni", SLOW)
    folder = submit(runs / "lab", FAST)
    first, second = rebuilt().ranking.ranked
    assert (first.entry.source, second.entry.source) == ("lab", "uni")
    assert (first.rank, second.rank) == (1, 2)
    (training,) = score(Contents(folder)).trainings
    assert training.speed is not None
    assert first.result.score == training.speed.vflops_capped == training.speed.flops
    assert first.result.published == training.speed.vflops
    assert first.result.time_s == training.wall_s
    assert first.result.quality == 0.92
    assert first.result.per_watt == training.vflops_capped_per_watt
    assert first.result.efficiency == training.mfu.value
    assert (first.result.accelerators, first.result.device) == (2, "Accelerator A")
    assert first.entry.system == "2 × Accelerator A, Test CPU"
    assert first.entry.framework == "PyTorch 2.13.0"
    assert first.facets == (
        first.entry.rule_set,
        "image-classification",
        "tiny",
        f"top-1 accuracy ≥ {TASK.synthetic.target:g}, n = 5",
        f"{TASK.train.epochs} epochs",
        "none",
        "synthetic",
        first.result.problem,
    )
    assert first.result.problem.startswith("data ")
    assert first.entry.rule_set.startswith("practice/")


def test_equal_scores_have_equal_ranks(runs: Path, rebuilt: Callable[[], Built]) -> None:
    for number, quality in enumerate((0.9, 0.95, 0.75)):  # two reach the target of 0.78
        submit(runs, replace(FAST, id=f"20260101T000000Z-x-00000{number}", quality=quality))
    assert [each.rank for each in rebuilt().ranking.ranked] == [1, 1, 3]


def test_other_data_is_another_list(runs: Path, rebuilt: Callable[[], Built]) -> None:
    submit(runs, FAST)
    real = replace(SLOW, epochs=REAL_EPOCHS, quality=0.77)
    submit(runs, replace(real, facts=REAL))
    easier = {"data": {**REAL["data"], "fingerprint": "e" * 64}}
    submit(runs, replace(real, id="20260303T000000Z-x-000003", facts={**REAL, **easier}))
    built = rebuilt()
    assert not why(built)
    assert {each.rank for each in built.ranking.ranked} == {1}
    assert [each.facets[5:7] for each in built.ranking.ranked] == [
        ("hardware", "real"),
        ("hardware", "real"),
        ("none", "synthetic"),
    ]
    assert [each.facets[7].split(",")[0] for each in built.ranking.ranked[:2]] == [
        f"data {12 * '0'}",
        f"data {12 * 'e'}",
    ]


def test_longer_training_does_not_rank(runs: Path, rebuilt: Callable[[], Built]) -> None:
    """What more epochs buy in quality is no better machine."""
    submit(runs, SLOW)
    submit(runs, replace(FAST, epochs=60))
    built = rebuilt()
    assert [each.entry.run for each in built.ranking.ranked] == [SLOW.id]
    (reason,) = why(built)
    assert re.fullmatch(
        f"open task [0-9a-f]{{12}}: train.epochs 60 instead of {TASK.train.epochs}", reason
    )


def test_own_data_does_not_rank(runs: Path, rebuilt: Callable[[], Built]) -> None:
    real = replace(SLOW, epochs=REAL_EPOCHS, quality=0.77)
    submit(runs, replace(real, facts={**REAL, "data": {**REAL["data"], "validation": 49_999}}))
    built = rebuilt()
    assert not built.ranking.ranked
    (reason,) = why(built)
    assert "own data 000000000000 instead of" in reason


def test_a_target_that_is_not_the_profiles_does_not_rank(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    goal = {"quality": "top-1 accuracy", "better": "higher", "target": 0.1, "exponent": 5}
    settings = TASK.model_copy(update={"target": 0.1}).model_dump(mode="json")
    settings["train"]["ranks"] = FAST.ranks
    submit(runs, replace(FAST, facts={"goal": goal, "settings": settings}))
    built = rebuilt()
    assert not built.ranking.ranked
    (reason,) = why(built)
    assert "rule goal: jobs/1/job.json: its own target 0.1 is too easy to be a goal" in reason
    (result,) = built.ranking.unranked[0].entry.results
    assert result.reason is not None
    assert result.reason.endswith(f"target 0.1 instead of {TASK.synthetic.target:g}")


def test_an_edited_run_is_listed_apart_with_what_was_altered(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    submit(runs, FAST)
    folder = submit(runs, SLOW)
    assert len(rebuilt().ranking.ranked) == 2
    log = folder.path / "jobs/1/0/events.jsonl"
    log.write_text(log.read_text().replace('"quality": 0.77,', '"quality": 0.99,'))
    built = rebuilt()
    assert built.read == 1, "the edit is seen although an entry was kept"
    assert [each.entry.run for each in built.ranking.ranked] == [FAST.id]
    (reason,) = why(built)
    assert "not verified: jobs/1/0/events.jsonl" in reason
    assert str(runs) not in reason


def test_a_run_that_breaks_a_rule_names_it(runs: Path, rebuilt: Callable[[], Built]) -> None:
    folder = submit(runs, FAST)
    folder.score_file.unlink()
    (folder.path / "manifest.json").unlink()
    write_manifest(folder)
    built = rebuilt()
    assert not built.ranking.ranked
    assert why(built)[0].startswith("rule score: ")


def test_a_run_without_a_manifest_is_not_verified(runs: Path, rebuilt: Callable[[], Built]) -> None:
    (submit(runs, FAST).path / "manifest.json").unlink()
    (reason,) = why(rebuilt())
    assert reason.startswith("not verified: manifest.json: missing")


def test_only_what_changed_is_read_and_written_again(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    submit(runs / "a", FAST)
    submit(runs / "b", SLOW)
    first = rebuilt()
    assert (first.read, first.written) == (2, 3)
    again = rebuilt()
    assert (again.read, again.written) == (0, 0)
    assert again.ranking == first.ranking
    submit(runs / "c", replace(SLOW, id="20260303T000000Z-x-000003", quality=0.76))
    more = rebuilt()
    assert (more.read, more.written) == (1, 2), "the index, and the page of the new system"
    shutil.rmtree(runs / "c")
    less = rebuilt()
    assert (less.read, less.written) == (0, 1)
    assert len(list(less.index.parent.glob("systems/*.html"))) == 2


def test_a_torn_store_is_read_again(runs: Path, rebuilt: Callable[[], Built]) -> None:
    submit(runs, FAST)
    first = rebuilt()
    kept = first.index.parent / ".entries" / "entries.jsonl"
    kept.write_bytes(kept.read_bytes()[:-40])
    again = rebuilt()
    assert (again.read, again.written) == (1, 0)


def test_an_archive_is_added_by_one_command(tmp_path: Path, runs: Path) -> None:
    made = submit(tmp_path / "elsewhere", FAST)
    packed = archive(made, tmp_path)
    assert add(packed, runs)
    assert not add(packed, runs), "the same again changes nothing"
    built = build([runs], tmp_path / "site")
    (only,) = built.ranking.ranked
    assert (only.entry.run, only.entry.place) == (FAST.id, packed.name)
    assert built.submissions == 1
    packed.write_bytes(b"another")
    with pytest.raises(UsageError, match="a different archive"):
        add(packed, runs)


def test_a_broken_archive_is_listed_apart(runs: Path, rebuilt: Callable[[], Built]) -> None:
    runs.mkdir()
    (runs / "broken.tar.bz2").write_bytes(b"no archive")
    built = rebuilt()
    assert [each.entry.place for each in built.ranking.unranked] == ["broken.tar.bz2"]


def test_copies_of_a_run_rank_once(runs: Path, rebuilt: Callable[[], Built]) -> None:
    folder = submit(runs / "a", FAST)
    shutil.copytree(folder.path, runs / "b" / folder.path.name)
    built = rebuilt()
    assert [each.entry.source for each in built.ranking.ranked] == ["a"]
    assert why(built) == [f"a copy of a/{FAST.id}"]


def test_a_copy_with_another_manifest_of_the_same_record_is_a_copy(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    folder = submit(runs / "a", FAST)
    other = Path(shutil.copytree(folder.path, runs / "b" / folder.path.name)) / "manifest.json"
    other.write_text(json.dumps(json.loads(other.read_text())))
    built = rebuilt()
    assert [each.entry.source for each in built.ranking.ranked] == ["a"]
    assert why(built) == [f"a copy of a/{FAST.id}"]


@pytest.mark.parametrize("pinned_again", [False, True])
def test_a_space_in_run_json_is_an_alteration_even_where_the_manifest_was_made_anew(
    runs: Path, rebuilt: Callable[[], Built], pinned_again: bool
) -> None:
    folder = submit(runs, FAST)
    run = folder.path / "run.json"
    run.write_text(run.read_text().replace("{", "{ ", 1))
    if pinned_again:
        folder.manifest_file.unlink()
        write_manifest(folder)
    built = rebuilt()
    assert not built.ranking.ranked
    words = "jobs/0/0/events.jsonl:1: does not follow" if pinned_again else "run.json: changed"
    assert why(built)[0].startswith(f"not verified: {words}")


@pytest.mark.parametrize("quality", [FAST.quality, 0.95])
def test_a_run_written_again_under_another_id_does_not_rank(
    runs: Path, rebuilt: Callable[[], Built], quality: float
) -> None:
    submit(runs / "b", FAST)
    later = replace(FAST, id="20260909T000000Z-x-000000", created_utc="2026-09-09T00:00:00+00:00")
    copied = submit(runs / "b", replace(later, quality=quality))
    built = rebuilt()
    assert [each.entry.run for each in built.ranking.ranked] == [FAST.id]
    (reason,) = why(built)
    assert reason.startswith(f"a copy of b/{FAST.id} under another id")
    (runs / "a").mkdir()
    copied.path.rename(runs / "a" / copied.path.name)
    built = rebuilt()
    assert not built.ranking.ranked
    assert len(built.ranking.disputes) == 1
    assert all(reason.startswith("disputed: the same measurements in 2") for reason in why(built))


@pytest.mark.parametrize("valid", [True, False])
def test_an_archive_beside_its_run_is_not_listed_again(
    runs: Path, rebuilt: Callable[[], Built], valid: bool
) -> None:
    folder = submit(runs, FAST if valid else replace(FAST, quality=7.0))
    packed = archive(folder, runs)
    found = rebuilt().ranking
    assert (len(found.ranked), len(found.unranked)) == ((1, 0) if valid else (0, 1))
    packed.rename(runs / "b.tar.bz2")
    found = rebuilt().ranking
    assert len(found.ranked) + len(found.unranked) == 2
    assert [each.entry.place for each in found.unranked][-1] == "b.tar.bz2"


def test_two_runs_with_one_id_do_not_rank(runs: Path, rebuilt: Callable[[], Built]) -> None:
    submit(runs / "a", FAST)
    submit(runs / "b", replace(FAST, quality=0.93))
    built = rebuilt()
    assert not built.ranking.ranked
    assert all("disputed: the same measurements in 2" in each for each in why(built))


@needs_ssh_keygen
def test_with_signers_the_signer_is_the_source_and_others_do_not_rank(
    runs: Path, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    words = ["-t", "ed25519", "-N", "", "-C", "lab@example.org", "-f", str(key)]
    subprocess.run(["ssh-keygen", "-q", *words], check=True)
    sign_run(submit(runs / "somewhere", FAST), key)
    submit(runs / "elsewhere", SLOW)
    signers = tmp_path / "signers"
    signers.write_text(f"{allowed_line(key)}\n")
    anyone = build([runs], tmp_path / "site")
    assert [each.entry.source for each in anyone.ranking.ranked] == ["somewhere", "elsewhere"]
    built = build([runs], tmp_path / "site", trusted=TrustedKeys(signers))
    assert built.read == 2, "another list of signers may judge otherwise"
    (ranked,) = built.ranking.ranked
    assert (ranked.entry.source, ranked.entry.signer) == ("lab@example.org", "lab@example.org")
    assert why(built) == ["not verified: not signed"]


def test_another_folder_is_not_overwritten(tmp_path: Path, runs: Path) -> None:
    submit(runs, FAST)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "index.html").write_text("my page")
    with pytest.raises(UsageError, match="something other than a ranking"):
        build([runs], tmp_path / "mine")
    assert (tmp_path / "mine" / "index.html").read_text() == "my page"
    with pytest.raises(UsageError, match="something other than a ranking"):
        build([runs], tmp_path / "mine" / "index.html")


def test_the_site_may_lie_among_the_submissions(runs: Path) -> None:
    submit(runs, FAST)
    assert build([runs], runs / "site").submissions == 1
    assert build([runs], runs / "site").submissions == 1


def test_a_folder_is_named_once_however_often_it_is_given(runs: Path, tmp_path: Path) -> None:
    folder = submit(runs / "a", FAST)
    found = find([runs, runs / "a", folder.path], tmp_path / "site")
    assert [each.place for each in found] == [f"a/{FAST.id}"]


def test_pages_are_the_same_bytes_from_the_same_submissions(runs: Path, tmp_path: Path) -> None:
    submit(runs / "a", FAST)
    submit(runs / "b", SLOW)
    one = build([runs], tmp_path / "one").index.read_bytes()
    assert build([runs], tmp_path / "two").index.read_bytes() == one


def test_many_are_read_by_several_processes(
    runs: Path, rebuilt: Callable[[], Built], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(runs / "a", FAST)
    submit(runs / "b", SLOW)
    monkeypatch.setattr("vflops.publish.ranking.reader_processes.CHUNK", 1)
    assert [each.entry.source for each in rebuilt().ranking.ranked] == ["a", "b"]


def test_what_no_evidence_leaves_out_is_seen_whatever_its_folder_is_called(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    folder = submit(runs, FAST)
    (folder.path / "manifest.json").unlink()
    (folder.path / "telemetry" / "checkpoint").mkdir(parents=True)
    (folder.path / "jobs" / "1" / "checkpoint").mkdir()
    inside, outside = (folder.path / f"{n}/checkpoint/x.json" for n in ("telemetry", "jobs/1"))
    inside.write_text("{}")
    write_manifest(folder)
    assert len(rebuilt().ranking.ranked) == 1
    outside.write_text("{}")
    assert rebuilt().read == 0
    inside.write_text('{"edited": 1}')
    assert "not verified: telemetry/checkpoint/x.json: changed" in why(rebuilt())[0]


def test_an_archive_is_never_seen_half_copied(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    (tmp_path / "a.tar.bz2").write_bytes(b"whole")
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(RunFailed, match="No space left"):
        add(tmp_path / "a.tar.bz2", runs)
    assert list(runs.iterdir()) == []


def test_the_command_says_what_it_did_and_needs_no_torch(tmp_path: Path, runs: Path) -> None:
    submit(runs, FAST)
    program = (
        "import sys; from vflops.cli import application;"
        "application(['ranking'])(sys.argv[1:], standalone_mode=False);"
        "assert 'torch' not in sys.modules"
    )
    words = ["ranking", str(runs), "--site", str(tmp_path / "site")]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert lines[:3] == [
        "1 submission, 1 new or changed",
        "1 result ranked",
        "1 result ranked by energy",
    ]
    assert lines[3].startswith("2 pages written, ")
    data = (tmp_path / "site" / "index.html").read_text().split('type="application/json">')[1]
    assert json.loads(data.split("</script>")[0])["rows"]["run"] == [FAST.id]


def test_the_command_names_what_does_not_rank_and_what_is_left_out(
    vflops: Vflops, tmp_path: Path, runs: Path
) -> None:
    packed = tmp_path / "broken.tar.bz2"
    packed.write_bytes(b"no archive")
    words = ["ranking", runs, "--site", tmp_path / "site", "--add", packed]
    first = vflops(*words)
    assert "0 results ranked, 1 not; the page says why" in first.stdout
    assert f"  {packed.name}: " in first.stdout
    (runs / "notes\x1b[2J.zip").write_bytes(b"")
    again = vflops(*words)
    assert f"{packed.name} is already among the submissions\n" in again.stdout
    left_out = "left out, neither a run folder nor an archive (.tar.bz2): $'runs/notes\\x1b[2J.zip'"
    assert left_out in again.stdout


def test_a_folder_without_submissions_is_wrong_use(tmp_path: Path, runs: Path) -> None:
    runs.mkdir()
    with pytest.raises(UsageError, match="no submission in"):
        build([runs], tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_no_page_says_where_on_this_machine_a_submission_lies(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    runs.mkdir()
    (runs / "x.tar.bz2").write_bytes(b"")
    (submit(runs, FAST).path / "run.json").write_text("{}")
    built = rebuilt()
    assert len(why(built)) == 2
    assert str(runs.parent) not in built.index.read_text()
    assert not re.search(r"(^|\s)/|[\^$]|Error|, '", " ".join(why(built))), why(built)


def test_a_run_that_never_began_says_that_it_did_not_end(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    folder = submit(runs, FAST)
    shutil.rmtree(folder.path / "jobs" / "1" / "0")
    (folder.path / "jobs" / "0" / "1" / "events.jsonl").unlink()
    log = folder.path / "jobs" / "0" / "0" / "events.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    folder.manifest_file.unlink()
    folder.score_file.unlink()
    (reason,) = why(rebuilt())
    assert reason.startswith("it did not finish: ")


def test_copies_of_a_run_that_does_not_rank_are_named_so(
    runs: Path, rebuilt: Callable[[], Built]
) -> None:
    folder = submit(runs / "a", FAST)
    folder.score_file.write_text("{}")
    for name in ("b", "c"):
        shutil.copytree(folder.path, runs / name / folder.path.name)
    first, *others = why(rebuilt())
    assert "score.json" in first
    assert others == [f"a copy of a/{FAST.id}, which does not rank either"] * 2


def test_a_folder_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        build([tmp_path / "no"], tmp_path / "site")


def test_a_run_that_trained_nothing_says_so(
    run_folder: RunFolder, rebuilt: Callable[[], Built]
) -> None:
    score(Contents(run_folder)).write(run_folder.score_file)
    write_manifest(run_folder)
    assert why(rebuilt()) == ["nothing was trained"]
