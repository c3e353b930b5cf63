"""A ranking with audits: who audited what, and which audits count."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.publish.evidence.test_ssh_signature import make_key
from tests.support.audit_files import audit_record, part, write_audit
from tests.support.browser import Browser
from tests.support.ranking_runs import Submitted, submit
from tests.support.sample_parts import Vflops
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.errors import UsageError
from vflops.publish.evidence.sign_run import allowed_line, sign_run
from vflops.publish.evidence.signed_audit import NAMESPACE
from vflops.publish.evidence.ssh_signature import Signature
from vflops.publish.ranking import audit_files
from vflops.publish.ranking.audit_join import AuditSources, _entry_audit, _Joining
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.entry_audits import share_text
from vflops.publish.ranking.judge import TrustedKeys
from vflops.publish.ranking.ranking_document import ranking_document
from vflops.publish.ranking.static_site import Built, build
from vflops.record.folder import RunFolder
from vflops.results.evidence.manifest import write_manifest

pytestmark = needs_ssh_keygen
HOSTILE = "<script>window.harmed=1</script>\u202e"


@dataclass(frozen=True)
class Site:
    """A folder of submissions and audits, and the ranking of both."""

    folder: Path
    runs: dict[str, RunFolder]
    built: Built

    def entry(self, name: str) -> Entry:
        """Return the entry of a submission."""
        entries = [row.entry for row in self.built.ranking.ranked]
        entries += [row.entry for row in self.built.ranking.unranked]
        return next(entry for entry in entries if entry.place.startswith(f"{name}/"))

    def standings(self, name: str) -> list[tuple[str, str]]:
        """Return the auditors of a submission, and whether their audits count."""
        audited = self.entry(name).audited
        return [(a.auditor, a.standing) for a in audited.audits] if audited else []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Submissions of Alice, audited by Carol and Dave, who are listed, and by others."""
    folder = tmp_path_factory.mktemp("audited")
    alice, carol, dave, mallory = (
        make_key(folder / name) for name in ("alice", "carol", "dave", "mallory")
    )
    auditors = [allowed_line(key, NAMESPACE) for key in (alice, carol, dave)]
    (folder / "auditors").write_text("".join(f"{line}\n" for line in auditors))
    (folder / "signers").write_text(f"{allowed_line(alice)}\n{allowed_line(mallory)}\n")
    names = ("agreed", "forged", "own", "changed", "unknown", "doubtful")
    runs = {
        name: submit(
            folder / "runs" / name,
            Submitted(id=f"20260101T000000Z-{name}-00000{number}", quality=0.78 - number / 100),
        )
        for number, name in enumerate(names)
    }
    for run in runs.values():
        sign_run(run, alice)
    audits = folder / "audits"
    agreed = runs["agreed"]
    write_audit(audits / "carol" / "1", audit_record(agreed, part(0, 100), part(200, 220)), carol)
    write_audit(audits / "dave" / "1", audit_record(agreed, part(50, 150)), dave)
    write_audit(audits / "mallory" / "1", audit_record(agreed, part(0, 900)), mallory)
    differs = part(0, 10, verdict="differs", detail="1 hash differs")
    contradicted = {"verdict": "contradicted", "detail": f"job 1 differs {HOSTILE}"}
    write_audit(
        audits / "carol" / "2", audit_record(runs["forged"], differs, **contradicted), carol
    )
    write_audit(audits / "mallory" / "2", audit_record(agreed, differs, **contradicted), mallory)
    write_audit(audits / "alice" / "1", audit_record(runs["own"], part(0, 900)), alice)
    other = audit_record(runs["changed"], part(0, 900), manifest_sha256="0" * 64)
    write_audit(audits / "carol" / "3", other, carol)
    write_audit(audits / "nobody", audit_record(runs["unknown"], part(0, 900)))
    late = write_audit(audits / "late", audit_record(runs["unknown"], part(0, 800)), carol)
    late.write_text(late.read_text().replace("800", "999"))
    vague = {"verdict": "not conclusive", "detail": "the run claims 1.30 × the speed"}
    write_audit(audits / "dave" / "2", audit_record(runs["doubtful"], part(0, 10), **vague), dave)
    absent = audit_record(agreed, part(0, 10), run=HOSTILE)
    write_audit(audits / "absent", absent, carol)
    for name, text in {
        "empty": "",
        "deep": "[" * 100_000,
        "future": audit_record(agreed, created_utc="2099-01-01T00:00:00+00:00").to_json(),
        "fields": json.dumps({"schema": "vflops.audit/1"}),
    }.items():
        (audits / name).mkdir()
        (audits / name / "audit.json").write_text(text)
    (audits / "link").mkdir()
    (audits / "link" / "audit.json").symlink_to(audits / "carol" / "1" / "audit.json")
    built = build(
        [folder / "runs"],
        folder / "site",
        trusted=TrustedKeys(folder / "signers"),
        audits=AuditSources(audits, folder / "auditors"),
    )
    return Site(folder, runs, built)


def test_what_agrees_on_another_stack_is_not_confirmed(site: Site) -> None:
    """Also if the version of the auditor called it so."""
    near = part(100, 200, verdict="within tolerance")
    record = audit_record(site.runs["agreed"], near, same_stack=False)
    assert record.verdict == "confirmed"
    signature = Signature(good=True, signer="dave@example.org", text="", key="k")
    audit = _entry_audit(record, signature, site.entry("agreed"), matches=True)
    joining = _Joining()
    joining.add(audit, record)
    audited = joining.result()
    assert (audit.verdict, audited.steps, audited.auditors) == ("consistent", 0, ())
    assert audited.text == "dave@example.org: 10 % of the steps, consistent within a tolerance"


def test_audits_of_one_run_are_joined(site: Site) -> None:
    audited = site.entry("agreed").audited
    assert audited is not None
    # 0–100 and 200–220 by Carol and 50–150 by Dave: 170 of 1000 steps.
    assert (audited.steps, audited.steps_total) == (170, 1000)
    text = "carol@example.org and dave@example.org: 17 % of the steps, same bits"
    assert audited.text == text
    assert site.standings("agreed")[:2] == [
        ("carol@example.org", "counts"),
        ("dave@example.org", "counts"),
    ]
    first = audited.audits[0]
    assert (first.samples_per_s_recorded, first.samples_per_s_here) == (1200.0, 1180.0)
    assert [each.name for each in first.parts] == [
        "job 1, steps 0 to 100",
        "job 1, steps 200 to 220",
    ]


def test_a_listed_auditor_who_contradicts_a_run_removes_it(site: Site) -> None:
    ranked = [row.entry.place.split("/")[0] for row in site.built.ranking.ranked]
    assert ranked == ["agreed", "own", "changed", "unknown", "doubtful"]
    (unranked,) = site.built.ranking.unranked
    (reason,) = unranked.reasons
    assert unranked.entry.place.startswith("forged/")
    assert reason.startswith("contradicted by the audit of carol@example.org on 2026-02-01: job 1")


def test_an_audit_by_anybody_else_does_not_count(site: Site) -> None:
    others = site.standings("agreed")[2:]
    assert [standing for _, standing in others] == ["unverified", "unverified"]
    assert all(auditor.startswith("ED25519 key SHA256:") for auditor, _ in others)
    assert site.standings("own") == [("alice@example.org", "own")]
    assert site.standings("changed") == [("carol@example.org", "not matching")]
    unknown = site.entry("unknown").audited
    assert unknown is not None and unknown.text == ""
    assert {a.reason for a in unknown.audits} == {"it is not signed", "its signature is not valid"}


def test_an_audit_that_is_not_conclusive_is_shown_but_covers_nothing(site: Site) -> None:
    audited = site.entry("doubtful").audited
    assert audited is not None
    assert (audited.text, audited.steps) == ("dave@example.org: not conclusive", 0)


def test_unusable_audits_are_listed_with_the_reason(site: Site) -> None:
    reasons = {audit.place.split("/")[0]: audit.reason for audit in site.built.unusable_audits}
    assert reasons.keys() == {"absent", "empty", "deep", "future", "fields"}
    assert reasons["absent"] == "its run was not submitted"
    assert reasons["future"].startswith("out of bounds: day: 2099-01-01 is in the future")
    assert "is not JSON" in reasons["deep"] and "field required" in reasons["fields"]
    assert not any(str(site.folder) in reason for reason in reasons.values())


def test_pages_and_document_show_who_audited_what(site: Site) -> None:
    page = site.built.index.read_text()
    assert "carol@example.org and dave@example.org: 17 % of the steps, same bits" in page
    assert "its run was not submitted" in page
    systems = "".join(path.read_text() for path in (site.folder / "site" / "systems").iterdir())
    assert "does not count: the submitter signed it" in systems
    assert "job 1, steps 200 to 220" in systems and "1.20 k samples/s recorded" in systems
    for text in (page, systems):
        assert "<script>window" not in text and "\u202e" not in text
        assert str(site.folder) not in text
    document = ranking_document(site.built.ranking, site.built.energy, site.built.unusable_audits)
    (performance,) = document.performance.lists
    assert performance.results[0].audited == site.entry("agreed").audited
    (contradicted,) = document.performance.not_ranked
    assert contradicted.audited is not None
    assert len(document.unusable_audits) == 5


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_with_audits_fit_the_screen(site: Site, width: int) -> None:
    (system,) = (site.folder / "site" / "systems").iterdir()
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    with Browser() as browser:
        index = browser.open(site.built.index, width=width)
        first = index.texts("#table tbody tr:first-child td.good small")
        assert first == [
            "audited by carol@example.org and dave@example.org: 17 % of the steps, same bits"
        ]
        assert index.run("document.querySelector('.card').scrollWidth") <= width
        index.enter("#search", "dave")
        assert len(index.texts("#table tbody tr")) == 2
        opened = browser.open(system, width=width)
        assert len(opened.texts("td[data-label=auditor]")) == 10
        opened.click("details summary")
        assert "job 1, steps 0 to 100" in opened.texts("details")[0]
        for tab in (index, opened):
            assert tab.run(overflow) == 0
            assert not tab.errors and not tab.requests and tab.run("window.harmed") is None


def test_the_terminal_shows_who_audited_what(site: Site, vflops: Vflops) -> None:
    options = ["--signers", "signers", "--audits", "audits", "--audit-signers", "auditors"]
    words = [site.folder / word if not word.startswith("--") else word for word in options]
    shown = vflops("ranking", site.folder / "runs", "--site", site.folder / "site", *words)
    assert shown.returncode == 0, shown.stderr
    text = "audited by carol@example.org and dave@example.org: 17 % of the steps, same bits"
    assert text in shown.stdout
    assert "4 audits counted, 11 not" in shown.stdout
    assert "absent/audit.json: its run was not submitted" in shown.stdout
    wrong = vflops("ranking", site.folder / "runs", "--site", "site", *words[-2:])
    assert wrong.returncode == 2 and "--audits DIR" in wrong.stderr


def test_without_a_list_of_auditors_no_audit_counts(site: Site, tmp_path: Path) -> None:
    audits = AuditSources(site.folder / "audits")
    built = build([site.folder / "runs"], tmp_path / "site", audits=audits)
    assert len(built.ranking.ranked) == 6
    audited = [row.entry.audited for row in built.ranking.ranked]
    assert not any(a.counts for joined in audited if joined for a in joined.audits)
    own = next(row.entry for row in built.ranking.ranked if row.entry.place.startswith("own/"))
    assert own.audited is not None and own.audited.audits[0].standing == "own"


def test_a_copy_with_other_derived_files_is_contradicted_too(site: Site, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    forged = site.runs["forged"]
    for name in ("first", "second"):
        shutil.copytree(forged.path, runs / name / forged.path.name)
    first = RunFolder.open(runs / "first" / forged.path.name)
    first.score_file.unlink()
    first.manifest_file.unlink()
    write_manifest(first)
    audits = AuditSources(site.folder / "audits", site.folder / "auditors")
    built = build([runs], tmp_path / "site", audits=audits)
    assert built.ranking.ranked == ()
    reasons = [row.reasons[0] for row in built.ranking.unranked]
    assert all(reason.startswith("contradicted by") for reason in reasons) and len(reasons) == 2


def test_only_so_many_audits_of_a_limited_size_are_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_files, "MAX_AUDITS", 2)
    *_, last = found = list(audit_files.read_audits(site.folder / "audits"))
    assert len(found) == 3 and isinstance(last, audit_files.UnusableAudit)
    assert "there are more than 2 audits" in last.reason
    monkeypatch.setattr(audit_files, "MAX_AUDIT_BYTES", 10)
    first = next(iter(audit_files.read_audits(site.folder / "audits")))
    assert isinstance(first, audit_files.UnusableAudit) and "the limit is" in first.reason
    with pytest.raises(UsageError, match="is not a folder"):
        next(iter(audit_files.read_audits(site.folder / "nowhere")))


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (0, ""),
        (1, "under 0.1 % of the steps"),
        (130, "1.3 % of the steps"),
        (1234, "12 % of the steps"),
        (20_000, "100 % of the steps"),
    ],
)
def test_shares_are_short(steps: int, text: str) -> None:
    assert share_text(steps, 10_000) == text
