"""Signatures of a manifest with an SSH key: ``ssh-keygen -Y`` in the namespace ``vflops``."""

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
"""The maximum size of a signature."""
_LINE = 'alice@example.org namespaces="vflops" ssh-ed25519 AAAA…'
_KEY = re.compile(r"\s(ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w@.-]+\s+AAAA[A-Za-z0-9+/]+=*(\s|$)")
_FAULTS = (
    (
        "incorrect passphrase",
        "it needs a passphrase",
        "load it: ssh-add KEY, or sign in a terminal, which asks for it",
    ),
    ("too open", "other users may read it, so SSH ignores it", "chmod 600 KEY"),
    ("Permission denied", "it may not be read", "give a key that you may read with --key"),
    (
        "No private key found",
        "its private part is neither beside it nor in an agent",
        "load it: ssh-add, or give the private key with --key",
    ),
)
"""What ssh-keygen prints, what it means, and what to do."""


@dataclass(frozen=True)
class Signature:
    """What is known about a signature."""

    good: bool
    """Whether it signs exactly these bytes, with the key that it names."""
    signer: str | None
    """The name of that key in the list of allowed signers; None: not in it, or no list."""
    words: str
    key: str | None = None
    """Its kind and fingerprint."""


def sign_file(path: Path, signature: Path, key: Path | None = None) -> Path:
    """Sign ``path`` with ``key`` or the user's default key, and return the key that was used."""
    key = key or _usual_key()
    if not key.is_file():
        raise UsageError(
            f"the key {key} does not exist", hint="give the file of your key with --key"
        )
    with TemporaryDirectory() as temporary:
        copy = Path(temporary, "manifest.json")
        copy.write_bytes(path.read_bytes())
        done = _ssh_keygen("sign", "-f", key, copy, ask=True)
        made = copy.with_name("manifest.json.sig")
        if done.returncode != 0 or not made.is_file():
            raise _cannot_sign(key, done.stderr or "")
        atomic.write_bytes(signature, made.read_bytes())
    return key


def check_signature(path: Path, signature: Path, signers: Path | None) -> Signature:
    """Return whether ``signature`` signs ``path``, and who of the file ``signers`` signed it."""
    if signers is not None and not signers.is_file():
        raise UsageError(
            f"the list of signers {signers} does not exist",
            hint=f"a line looks like this: {_LINE}",
        )
    if signers is not None:
        _require_keys(signers)
    if not signature.is_file() or signature.stat().st_size > MOST_BYTES:
        return Signature(False, None, "it is not a signature")
    with _read(path) as data:
        done = _ssh_keygen("check-novalidate", "-s", signature, data=data)
    if done.returncode != 0:
        fault = _last(done.stderr)
        return Signature(False, None, f"it is not a signature of this {path.name}: {fault}")
    by = done.stdout.strip().partition(" with ")[2] or "a key"
    if signers is None:
        words = f"signed by {by}; to see whose key that is: --signers FILE"
        return Signature(True, None, words, by)
    principals = _ssh_keygen("find-principals", "-s", signature, "-f", signers, space=False)
    said = principals.stderr
    for name in _names(principals.stdout):
        with _read(path) as data:
            asked = _ssh_keygen("verify", "-f", signers, "-I", name, "-s", signature, data=data)
        if asked.returncode == 0:
            return Signature(True, name, f"signed by {name}, {by}", by)
        said += asked.stderr
    return Signature(True, None, f"signed by {by}, {_refused(signers, said)}", by)


def _names(said: str) -> list[str]:
    """Return the names of the key in the list; one line may have several."""
    return [name for line in said.splitlines() for name in line.strip().split(",") if name]


def _refused(signers: Path, said: str) -> str:
    """Return why the list does not allow the key, with its line if ssh-keygen names it."""
    for line in said.splitlines():
        location, _, why = line.strip().partition(": key ")
        if location.startswith(f"{signers}:") and why:
            return f"which {location} does not allow: the key {why}"
    return f"which {signers} does not allow"


def _require_keys(signers: Path) -> None:
    """Raise if a line of the list holds no key: ssh-keygen would silently ignore it."""
    lines = signers.read_bytes().decode(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#") and not _KEY.search(text):
            raise UsageError(
                f"{signers}:{number} holds no key: {text[:60]!r}",
                hint=f"a line looks like this: {_LINE}",
            )


def _ssh_keygen(
    what: str, *words: str | Path, data: int | None = None, ask: bool = False, space: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run ``ssh-keygen -Y``; it asks for a passphrase only in a terminal."""
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
            "ssh-keygen, which signs and checks signatures, is not installed",
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
        f"no key in {keys[0].parent}: looked for {', '.join(USUAL_KEYS)}",
        hint="give one with --key FILE, or create one: ssh-keygen -t ed25519",
    )


def _cannot_sign(key: Path, said: str) -> UsageError:
    if "load public key" in said or "invalid format" in said:
        return UsageError(
            f"{key} is not an SSH key", hint="give the file of your private key with --key"
        )
    for sign, meaning, hint in _FAULTS:
        if sign in said:
            wrong = f"cannot sign with {key}: {meaning}"
            return UsageError(wrong, hint=hint.replace("KEY", str(key)))
    return UsageError(f"cannot sign with {key}: {_last(said)}")


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "ssh-keygen does not say why"
