"""A run that is verified and checked at once: the same verdicts, and no file hashed twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.evidence_runs import concluded
from vflops.publish.evidence.verify import verify, verify_contents
from vflops.record.files.digest import Digest, file_digest
from vflops.record.folder import RunFolder
from vflops.record.readout import contents
from vflops.record.readout.contents import Contents
from vflops.results.check.checking import check
from vflops.results.score.scoring import score


@pytest.mark.parametrize("name", ["run.json", "system.json", "jobs/0/0/events.jsonl", "score.json"])
def test_the_verdicts_are_the_same(run_folder: RunFolder, name: str) -> None:
    concluded(run_folder)
    assert verify_contents(Contents(run_folder)).intact
    path = run_folder.path / name
    path.write_bytes(path.read_bytes().replace(b'"', b' "', 1))
    (run_folder.path / "added.json").write_text("{}")
    whole = Contents(run_folder)
    found = verify_contents(whole)
    assert found == verify(run_folder.path)
    assert not found.intact
    assert any(line.startswith(name) for line in found.alterations)
    assert check(whole) == check(Contents(run_folder))


def test_no_file_is_hashed_twice(run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    concluded(run_folder)
    hashed: Counter[str] = Counter()

    def counted(path: Path) -> Digest:
        hashed[path.name] += 1
        return file_digest(path)

    monkeypatch.setattr(contents, "file_digest", counted)
    whole = Contents(run_folder)
    verify_contents(whole)
    check(whole)
    assert hashed["system.json"] == hashed["score.json"] == 1
    assert max(hashed.values()) == 1


def test_what_is_asked_twice_is_found_once(run_folder: RunFolder) -> None:
    whole = Contents(run_folder)
    assert whole.once(score) is whole.once(score)
    assert whole.once(score) is not Contents(run_folder).once(score)
    assert whole.hash(run_folder.system_file) == file_digest(run_folder.system_file).sha256
