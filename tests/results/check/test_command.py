"""``vflops check``: several runs, another rule set, JSON, and what is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.support.sample_parts import Vflops
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.check.advice import ADVICE
from vflops.results.score.scoring import score


@pytest.fixture
def two(run_folder: RunFolder, tmp_path: Path) -> tuple[Path, Path]:
    """A good run, and a copy of it with another system."""
    score(Contents(run_folder)).write(run_folder.score_file)
    bad = tmp_path / "bad"
    shutil.copytree(run_folder.path, bad)
    text = (bad / "system.json").read_text()
    (bad / "system.json").write_text(text.replace("Test CPU", "Cray-99"))
    return run_folder.path, bad


def test_all_runs_must_meet_all_rules(vflops: Vflops, two: tuple[Path, Path]) -> None:
    good, bad = two
    result = vflops("check", good)
    assert result.returncode == 0, result.stderr
    assert "next: vflops report" in result.stderr
    assert "rule set practice/16: 13 pass, 44 do not apply" in result.stdout
    assert "not applicable:  manifest," in result.stdout
    result = vflops("check", good, bad)
    assert result.returncode == 1
    place = "system.json: the description of the system is not the one that this run wrote"
    assert f"fail system the system is described: {place}" in " ".join(result.stdout.split())
    last = " ".join(result.stdout.split("not met:\n")[1].split())
    assert last == f"system {place} → {ADVICE['system']}"
    assert "1 of 2 runs do not meet their rules" in result.stderr
    assert "1 of 13 rules is not met: system" in result.stderr
    assert "next:" not in result.stderr


def test_a_busy_machine_is_told_last_with_what_to_do(vflops: Vflops, run_folder: RunFolder) -> None:
    log = run_folder.path / "jobs/0/0/events.jsonl"
    log.write_text(log.read_text().replace('"others_share": 0.02', '"others_share": 0.42'))
    last = " ".join(vflops("check", run_folder.path).stdout.split("not met:\n")[1].split())
    assert "other programs used 42 % of the CPUs while ceilings were measured" in last
    assert f"→ {ADVICE['quiet']}" in last


def test_json_is_a_document_or_a_list_of_them(vflops: Vflops, two: tuple[Path, Path]) -> None:
    good, bad = two
    one = json.loads(vflops("check", good, "--json").stdout)
    assert one == json.loads((good / "findings.json").read_text())
    both = json.loads(vflops("check", good, bad, "--json").stdout)
    assert both[0] == one
    failed = [finding for finding in both[1]["findings"] if finding["verdict"] == "fail"]
    assert [(finding["rule"], finding["where"]) for finding in failed] == [
        ("system", "system.json")
    ]


def test_findings_of_another_set_are_shown_and_not_kept(
    vflops: Vflops, two: tuple[Path, Path]
) -> None:
    good, _ = two
    result = vflops("check", good, "--rules", "hpcai500-v2")
    assert result.returncode == 1
    assert "rule set hpcai500-v2/12" in result.stdout
    assert "1 of 14 rules is not met: workload" in result.stderr
    assert not (good / "findings.json").exists()
    result = vflops("check", good, "--rules", "hpcai500-v4")
    assert result.returncode == 2
    assert "unknown rule set 'hpcai500-v4'" in result.stderr


def test_a_level_can_be_required(vflops: Vflops, run_folder: RunFolder) -> None:
    """The run has profile tiny: another network and recipe, other data."""
    result = vflops("check", run_folder.path, "--level", "hardware")
    assert result.returncode == 1
    assert "level hardware cannot be claimed" in result.stderr
