"""The commands as a user types them: one story from a run to a reader who trusts it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.support.evidence_runs import concluded
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.config.profiles import tiny
from vflops.record.folder import RunFolder
from vflops.studies.reproduce.reproduction import Reproduction

Vflops = Callable[..., "subprocess.CompletedProcess[str]"]


@needs_ssh_keygen
def test_from_a_run_to_a_reader(vflops: Vflops, run_folder: RunFolder, tmp_path: Path) -> None:
    concluded(run_folder)
    key = tmp_path / "key"
    words = ["-t", "ed25519", "-N", "", "-C", "me@example.org", "-f", str(key)]
    subprocess.run(["ssh-keygen", "-q", *words], check=True)
    signed = vflops("sign", run_folder.path, "--key", key)
    assert signed.returncode == 0, signed.stderr
    line = next(each for each in signed.stdout.splitlines() if each.startswith("me@example.org"))
    (tmp_path / "signers").write_text(line)
    packed = vflops("archive", run_folder.path, "--out", "result.tar.bz2")
    sha256 = hashlib.sha256((tmp_path / "result.tar.bz2").read_bytes()).hexdigest()
    assert packed.stdout == f"result.tar.bz2\nSHA-256 {sha256}\n"
    assert "vflops verify" in packed.stderr
    again = vflops("archive", run_folder.path, "--out", "new/folder/")
    assert again.stdout.startswith(f"new/folder/{run_folder.record.id}.tar.bz2\n")
    refused = vflops("check", "result.tar.bz2")
    assert refused.returncode == 2 and "vflops extract result.tar.bz2" in refused.stderr
    assert "next: vflops archive" in vflops("verify", run_folder.path).stderr
    other = tmp_path / "other"
    words = ["-t", "ed25519", "-N", "", "-C", "my laptop", "-f", str(other)]
    subprocess.run(["ssh-keygen", "-q", *words], check=True)
    replaced = vflops("sign", run_folder.path, "--key", other).stdout
    assert "this replaces the signature of another key: ED25519 key SHA256:" in replaced
    assert "with your address instead of you@example.org:\nyou@example.org " in replaced
    seen = vflops("verify", "result.tar.bz2", "--signers", "signers")
    assert seen.returncode == 0 and "signed by me@example.org" in seen.stdout
    made = vflops("extract", "result.tar.bz2", "--out", "theirs")
    log = tmp_path / made.stdout.strip() / "jobs" / "0" / "0" / "events.jsonl"
    log.write_text(log.read_text().replace('"benchmark": "memory"', '"benchmark": "memori"'))
    found = vflops("verify", made.stdout.strip(), "--json")
    assert found.returncode == 1 and "was changed after it was concluded" in found.stderr
    assert "ask its author for it again" in found.stderr
    facts = json.loads(found.stdout)
    assert facts["intact"] is False
    assert "jobs/0/0/events.jsonl: line 7 was changed" in facts["alterations"]
    unsigned = vflops("verify", run_folder.path, "--signers", "nobody")
    assert unsigned.returncode == 2 and "the list of signers" in unsigned.stderr


def test_reproduce_runs_the_recorded_settings_again(
    vflops: Vflops, run_folder: RunFolder, tmp_path: Path
) -> None:
    """A run of one small benchmark, whose record is made by hand, for real."""
    settings = tiny()
    micro = settings.micro.model_copy(update={"benchmarks": ("memory",), "budget_s": 1.0})
    count = settings.count.model_copy(update={"models": ()})
    settings = settings.model_copy(update={"micro": micro, "count": count})
    folder = RunFolder.create(tmp_path / "recorded", "micro", settings)
    shutil.copy(run_folder.system_file, folder.system_file)
    with folder.start_attempt(job=0) as events:
        events.write("start", workload="micro")
        for event in run_folder.history().events("measurement"):
            if event.data["benchmark"] == "memory":
                events.write("measurement", **event.data)
        events.write("end")
    concluded(folder)
    done = vflops("reproduce", folder.path, "--out", "again", "--quiet")
    assert done.returncode == 0, done.stderr
    (made,) = (tmp_path / "again").iterdir()
    found = Reproduction.read(made / "reproduction.json")
    assert (found.recorded, found.run) == (folder.record.id, made.name)
    assert found.same_machine is False and found.differences
    assert [figure.name for figure in found.figures] == ["memory copy"]
    assert "was run again on another machine with different software" in done.stdout
    assert RunFolder.open(made).record.settings == settings
    assert "reproduction.json" in (made / "manifest.json").read_text()
