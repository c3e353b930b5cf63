from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.evidence_runs import concluded
from tests.support.ssh_keygen import needs_ssh_keygen
from vflops.errors import UsageError
from vflops.publish.evidence.archive import archive
from vflops.publish.evidence.sign_run import allowed_line, sign_run, signing_key
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.results.evidence.manifest import write_manifest

pytestmark = needs_ssh_keygen


def make_key(path: Path, passphrase: str = "") -> Path:
    words = ["-t", "ed25519", "-N", passphrase, "-C", f"{path.name}@example.org", "-f", str(path)]
    subprocess.run(["ssh-keygen", "-q", *words], check=True)
    return path


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return make_key(tmp_path / "alice")


@pytest.fixture
def signers(tmp_path: Path, alice: Path) -> Path:
    path = tmp_path / "allowed"
    path.write_text(f"{allowed_line(alice)}\n")
    return path


def test_a_signed_run_is_known_by_its_signer(
    run_folder: RunFolder, alice: Path, signers: Path
) -> None:
    concluded(run_folder)
    assert verify(run_folder.path).signature == "not signed"
    unsigned = verify(run_folder.path, signers)
    assert unsigned.intact and not unsigned.accepted
    assert sign_run(run_folder, alice) == alice
    found = verify(run_folder.path, signers)
    assert (found.signed, found.signer, found.accepted) == (True, "alice@example.org", True)
    alone = verify(run_folder.path)
    assert (alone.signed, alone.signer, alone.accepted) == (True, None, True)
    assert verify(archive(run_folder), signers) == found
    assert "to see whose key that is: --signers FILE" in alone.signature
    assert "SHA256:" in str(signing_key(run_folder))


def test_a_changed_manifest_has_a_bad_signature(
    run_folder: RunFolder, alice: Path, signers: Path
) -> None:
    concluded(run_folder)
    sign_run(run_folder, alice)
    (run_folder.path / "system.json").write_text("{}")
    (run_folder.path / "manifest.json").unlink()
    signature = (run_folder.path / "manifest.json.sig").read_bytes()
    write_manifest(run_folder)  # pins the edited file: only the signature knows better
    (run_folder.path / "manifest.json.sig").write_bytes(signature)
    found = verify(run_folder.path, signers)
    assert not found.signed and not found.intact
    assert found.alterations[0].startswith(
        "manifest.json.sig: it is not a signature of this manifest.json"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('bob@example.org namespaces="vflops" {other}', "signers does not allow"),
        ('alice@example.org namespaces="git" {own}', "signers:1 does not allow: the key is not"),
        (
            '# old\nalice@example.org valid-before="20200101",namespaces="vflops" {own}',
            "signers:2 does not allow: the key has expired: ",
        ),
    ],
)
def test_a_signer_who_is_not_allowed(
    run_folder: RunFolder, tmp_path: Path, alice: Path, line: str, why: str
) -> None:
    concluded(run_folder)
    sign_run(run_folder, alice)
    other = make_key(tmp_path / "bob")
    publics = {"own": alice, "other": other}
    words = {name: key.with_name(f"{key.name}.pub").read_text() for name, key in publics.items()}
    path = tmp_path / "zulässige signers"
    path.write_text(line.format(**words))
    found = verify(run_folder.path, path)
    assert (found.signed, found.signer, found.intact, found.accepted) == (True, None, True, False)
    assert why in found.signature


@pytest.mark.parametrize("line", ["nonsense", "alice@example.org ssh-ed25519", "\x00\x1b[31m"])
def test_a_line_of_the_list_that_holds_no_key_is_named(
    run_folder: RunFolder, alice: Path, signers: Path, line: str
) -> None:
    concluded(run_folder)
    sign_run(run_folder, alice)
    with signers.open("a") as file:
        file.write(f"# a note\n\n{line}\n")
    with pytest.raises(UsageError, match=r"allowed:4 holds no key"):
        verify(run_folder.path, signers)


def test_names_of_one_line_and_patterns(run_folder: RunFolder, tmp_path: Path, alice: Path) -> None:
    concluded(run_folder)
    sign_run(run_folder, alice)
    public = alice.with_name("alice.pub").read_text()
    path = tmp_path / "several"
    path.write_text(f"a@example.org,b@example.org {public}")
    assert verify(run_folder.path, path).signer == "a@example.org"
    path.write_text(f"*@example.org {public}")
    assert verify(run_folder.path, path).signer == "*@example.org"


@pytest.mark.parametrize("content", [b"", b"junk", b"x" * 100_000])
def test_a_file_that_is_no_signature(run_folder: RunFolder, content: bytes) -> None:
    concluded(run_folder)
    (run_folder.path / "manifest.json.sig").write_bytes(content)
    found = verify(run_folder.path)
    assert not found.signed
    assert found.alterations[0].startswith("manifest.json.sig: it is n")


def test_an_altered_or_unfinished_run_is_not_signed(run_folder: RunFolder, alice: Path) -> None:
    concluded(run_folder)
    (run_folder.path / "extra").write_text("x")
    with pytest.raises(UsageError, match="extra: added"):
        sign_run(run_folder, alice)
    (run_folder.path / "extra").unlink()
    with run_folder.start_attempt(job=0) as events:
        events.write("start", workload="suite")
    with pytest.raises(UsageError, match="is not complete: it stopped after 'start'"):
        sign_run(run_folder, alice)
    with run_folder.in_use(), pytest.raises(UsageError, match="it is in progress") as error:
        sign_run(run_folder, alice)
    assert error.value.hint == "wait until it ends"
    assert not (run_folder.path / "manifest.json.sig").exists()


def test_a_signature_ends_with_the_pins_that_it_was_of(run_folder: RunFolder, alice: Path) -> None:
    concluded(run_folder)
    sign_run(run_folder, alice)
    write_manifest(run_folder)  # nothing new: it stays
    assert verify(run_folder.path).signed
    (run_folder.path / "extra.txt").write_text("x")
    write_manifest(run_folder)
    assert verify(run_folder.path).signature == "not signed"


def test_keys_that_cannot_sign(
    run_folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    concluded(run_folder)
    locked = make_key(tmp_path / "locked", "secret")
    open_ = make_key(tmp_path / "open")
    open_.chmod(0o644)
    junk = tmp_path / "junk"
    junk.write_text("no key")
    junk.chmod(0o600)
    alone = tmp_path / "alone.pub"
    alone.write_text(locked.with_name("locked.pub").read_text())
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "never")
    expected = {
        locked: ("it needs a passphrase", f"ssh-add {locked}"),
        open_: ("other users can read it", f"chmod 600 {open_}"),
        junk: ("is not an SSH key", "--key"),
        alone: ("neither next to it nor in an SSH agent", "ssh-add"),
        tmp_path / "absent": ("does not exist", "--key"),
    }
    for key, (message, hint) in expected.items():
        with pytest.raises(UsageError, match=message) as error:
            sign_run(run_folder, key)
        assert hint in str(error.value.hint)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    with pytest.raises(UsageError, match="no key in") as error:
        sign_run(run_folder)
    assert "ssh-keygen -t ed25519" in str(error.value.hint)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="ssh-keygen, which signs") as error:
        sign_run(run_folder, open_)
    assert "openssh-client" in str(error.value.hint)


def test_a_list_of_signers_that_is_not_there(run_folder: RunFolder, alice: Path) -> None:
    concluded(run_folder)
    sign_run(run_folder, alice)
    with pytest.raises(UsageError, match="the list of signers"):
        verify(run_folder.path, Path("absent"))
