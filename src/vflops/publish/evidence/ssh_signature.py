"""Signatures of a manifest by an SSH key: ``ssh-keygen -Y``, in the namespace ``vflops``."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vflops.errors import UsageError
from vflops.record.files import atomic

NAMESPACE = "vflops"
USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
MOST_BYTES = 1 << 16
"""Of a signature that is read."""
_LINE = 'alice@example.org namespaces="vflops" ssh-ed25519 AAAA…'
_KEY = re.compile(r"\s(ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w@.-]+\s+AAAA[A-Za-z0-9+/]+=*(\s|$)")
_CURES = (
    (
        "incorrect passphrase",
        "it has a passphrase that was not given",
        "load it: ssh-add KEY, or sign in a terminal, where it is asked for",
    ),
    ("too open", "others may read it, so SSH ignores it", "chmod 600 KEY"),
    ("Permission denied", "it may not be read", "give one of your own with --key"),
    (
        "No private key found",
        "its private part is neither beside it nor in an agent",
        "load it: ssh-add, or give the private key with --key",
    ),
)
"""What ssh-keygen says, what that means, and what to do."""


@dataclass(frozen=True)
class Signature:
    """What is known of a signature that was looked at."""

    good: bool
    """Whether it is of these very bytes, by the key that it names."""
    signer: str | None
    """As the list of allowed signers calls that key; None: it is not in it, or there is no list."""
    words: str
    key: str | None = None
    """Its kind and fingerprint."""


def sign_file(path: Path, signature: Path, key: Path | None = None) -> Path:
    """Sign ``path`` with ``key``, by default the user's usual one; gives the key that was used."""
    key = key or _usual_key()
    if not key.is_file():
        raise UsageError(f"there is no key {key}", hint="give the file of your key with --key")
    with TemporaryDirectory() as place:
        copy = Path(place, "manifest.json")
        copy.write_bytes(path.read_bytes())
        done = _ssh_keygen("sign", "-f", key, copy, ask=True)
        made = copy.with_name("manifest.json.sig")
        if done.returncode != 0 or not made.is_file():
            raise _cannot_sign(key, done.stderr or "")
        atomic.write_bytes(signature, made.read_bytes())
    return key


def check_signature(path: Path, signature: Path, signers: Path | None) -> Signature:
    """Whether ``signature`` is one of ``path``, and by whom of the file ``signers``."""
    if signers is not None and not signers.is_file():
        raise UsageError(
            f"there is no list of signers {signers}",
            hint=f"a line of it: {_LINE}",
        )
    if signers is not None:
        _must_be_keys(signers)
    if not signature.is_file() or signature.stat().st_size > MOST_BYTES:
        return Signature(False, None, "it is no signature")
    with _read(path) as data:
        done = _ssh_keygen("check-novalidate", "-s", signature, data=data)
    if done.returncode != 0:
        fault = _last(done.stderr)
        return Signature(False, None, f"it is not a signature of this {path.name}: {fault}")
    by = done.stdout.strip().partition(" with ")[2] or "a key"
    if signers is None:
        words = f"signed by {by}; nobody was asked whose key it is: --signers FILE"
        return Signature(True, None, words, by)
    found = _ssh_keygen("find-principals", "-s", signature, "-f", signers, space=False)
    said = found.stderr
    for name in _names(found.stdout):
        with _read(path) as data:
            asked = _ssh_keygen("verify", "-f", signers, "-I", name, "-s", signature, data=data)
        if asked.returncode == 0:
            return Signature(True, name, f"signed by {name}, {by}", by)
        said += asked.stderr
    return Signature(True, None, f"signed by {by}, {_refused(signers, said)}", by)


def _names(said: str) -> list[str]:
    """What the list calls the key; a pattern or several names of one line are one name each."""
    return [name for line in said.splitlines() for name in line.strip().split(",") if name]


def _refused(signers: Path, said: str) -> str:
    """Why a list does not allow a key; ssh-keygen names the line only of the key's own."""
    for line in said.splitlines():
        place, _, why = line.strip().partition(": key ")
        if place.startswith(f"{signers}:") and why:
            return f"which {place} does not allow: the key {why}"
    return f"which {signers} does not allow"


def _must_be_keys(signers: Path) -> None:
    """Refuse a list with a line that holds no key: nobody would notice that it counts for none."""
    lines = signers.read_bytes().decode(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#") and not _KEY.search(text):
            raise UsageError(
                f"{signers}:{number} holds no key: {text[:60]!r}", hint=f"a line of it: {_LINE}"
            )


def _ssh_keygen(
    what: str, *words: str | Path, data: int | None = None, ask: bool = False, space: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run ``ssh-keygen -Y``; it asks for a passphrase only where a person can answer."""
    person = ask and sys.stdin is not None and sys.stdin.isatty()
    command = ["ssh-keygen", "-Y", what, *(("-n", NAMESPACE) if space else ()), *map(str, words)]
    try:
        return subprocess.run(
            command,
            stdin=data if data is not None else None if person else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if person else subprocess.PIPE,  # where it asks
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise UsageError(
            "there is no ssh-keygen here, which signs and checks signatures",
            hint="install OpenSSH's client: apt install openssh-client, dnf install openssh",
        ) from error


@contextmanager
def _read(path: Path) -> Iterator[int]:
    with path.open("rb") as file:
        yield file.fileno()


def _usual_key() -> Path:
    keys = [Path.home() / ".ssh" / name for name in USUAL_KEYS]
    for key in keys:
        if key.is_file():
            return key
    raise UsageError(
        f"there is no key in {keys[0].parent}: {', '.join(USUAL_KEYS)}",
        hint="give one with --key FILE, or make one: ssh-keygen -t ed25519",
    )


def _cannot_sign(key: Path, said: str) -> UsageError:
    if "load public key" in said or "invalid format" in said:
        return UsageError(
            f"{key} is not an SSH key", hint="give the file of your private key with --key"
        )
    for sign, meaning, hint in _CURES:
        if sign in said:
            wrong = f"cannot sign with {key}: {meaning}"
            return UsageError(wrong, hint=hint.replace("KEY", str(key)))
    return UsageError(f"cannot sign with {key}: {_last(said)}")


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "ssh-keygen does not say why"
