"""Signatures with an SSH key: ``ssh-keygen -Y``, by default in the namespace ``vflops``."""

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
from vflops.record.files.regular_file import open_regular, read_regular

NAMESPACE = "vflops"
"""The namespace of signatures of manifests: a signature in one is not valid in another."""
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
MAX_BYTES = 1 << 16
"""The maximum size of a signature."""
_EXAMPLE_LINE = 'a line looks like this: alice@example.org namespaces="{}" ssh-ed25519 AAAA…'
_KEY_PATTERN = re.compile(r"\s(ssh|ecdsa|sk-ssh|sk-ecdsa)-[\w@.-]+\s+AAAA[A-Za-z0-9+/]+=*(\s|$)")
_FAULTS = (
    (
        "incorrect passphrase",
        "it needs a passphrase",
        "load it: ssh-add KEY, or sign in a terminal, which asks for it",
    ),
    ("too open", "other users can read it, so SSH ignores it", "chmod 600 KEY"),
    ("Permission denied", "it is not readable", "give a readable key with --key"),
    (
        "No private key found",
        "the private key is neither next to it nor in an SSH agent",
        "load it: ssh-add, or give the private key with --key",
    ),
)
"""What ssh-keygen prints, what it means, and what to do."""


class SshKeygenMissing(UsageError):
    """Raised if ``ssh-keygen`` is not installed."""


@dataclass(frozen=True)
class Signature:
    """What is known about a signature."""

    good: bool
    """Whether it is valid for exactly these bytes and the key that it names."""
    signer: str | None
    """The name of the key in the list of allowed signers; None if not listed or without a list."""
    text: str
    """A description of the signature."""
    key: str | None = None
    """The type and the fingerprint of the key."""


def sign_file(
    path: Path, signature: Path, key: Path | None = None, *, namespace: str = NAMESPACE
) -> Path:
    """Sign ``path`` with ``key`` or the user's default key, and return the key that was used."""
    key = key or _default_key()
    if not key.is_file():
        raise UsageError(
            f"the key {key} does not exist", hint="give the file of your key with --key"
        )
    with TemporaryDirectory() as temporary:
        copy = Path(temporary, "manifest.json")
        copy.write_bytes(read_regular(path))
        signing = _ssh_keygen("sign", "-n", namespace, "-f", key, copy, may_prompt=True)
        written = copy.with_name("manifest.json.sig")
        if signing.returncode != 0 or not written.is_file():
            raise _cannot_sign(key, signing.stderr or "")
        atomic.write_bytes(signature, written.read_bytes())
    return key


def check_signature(
    path: Path, signature: Path, signers: Path | None, *, namespace: str = NAMESPACE
) -> Signature:
    """Check ``signature`` for ``path``, and look its key up in the file ``signers`` if given."""
    if signers is not None:
        require_signers(signers, namespace)
    if not signature.is_file() or signature.stat().st_size > MAX_BYTES:
        return Signature(False, None, "it is not a signature")
    with _open_descriptor(path) as data:
        check = _ssh_keygen("check-novalidate", "-n", namespace, "-s", signature, data=data)
    if check.returncode != 0:
        fault = _last_line(check.stderr)
        return Signature(False, None, f"it is not a signature of this {path.name}: {fault}")
    key_name = check.stdout.strip().partition(" with ")[2] or "a key"
    if signers is None:
        words = f"signed by {key_name}; to see whose key that is: --signers FILE"
        return Signature(True, None, words, key_name)
    principals = _ssh_keygen("find-principals", "-s", signature, "-f", signers)
    errors = principals.stderr
    for name in _principals(principals.stdout):
        with _open_descriptor(path) as data:
            verification = _ssh_keygen(
                *("verify", "-n", namespace, "-f", signers, "-I", name, "-s", signature),
                data=data,
            )
        if verification.returncode == 0:
            return Signature(True, name, f"signed by {name}, {key_name}", key_name)
        errors += verification.stderr
    return Signature(True, None, f"signed by {key_name}, {_refusal(signers, errors)}", key_name)


def _principals(output: str) -> list[str]:
    """Return the names that ssh-keygen found for the key; one line may have several."""
    return [name for line in output.splitlines() for name in line.strip().split(",") if name]


def _refusal(signers: Path, output: str) -> str:
    """Return why the list does not allow the key, with the line of the list if known."""
    # ssh-keygen escapes the path if it is not ASCII, so only the number of the line is read.
    if found := re.search(r":(\d+): key (.+)", output):
        return f"which {signers}:{found[1]} does not allow: the key {found[2].strip()}"
    return f"which {signers} does not allow"


def require_signers(signers: Path, namespace: str = NAMESPACE) -> None:
    """Raise if there is no such list, or one of its lines holds no key.

    ssh-keygen would silently ignore such a line.
    """
    hint = _EXAMPLE_LINE.format(namespace)
    if not signers.is_file():
        raise UsageError(f"the list of signers {signers} does not exist", hint=hint)
    lines = read_regular(signers).decode(errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if text and not text.startswith("#") and not _KEY_PATTERN.search(text):
            raise UsageError(
                f"{signers}:{number} holds no key: {text[:60]!r}",
                hint=hint,
            )


def _ssh_keygen(
    operation: str,
    *arguments: str | Path,
    data: int | None = None,
    may_prompt: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run ``ssh-keygen -Y``; it prompts for a passphrase only in a terminal."""
    prompts = may_prompt and sys.stdin is not None and sys.stdin.isatty()
    command = ["ssh-keygen", "-Y", operation, *map(str, arguments)]
    try:
        return subprocess.run(
            command,
            stdin=data if data is not None else None if prompts else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if prompts else subprocess.PIPE,  # where it prompts
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise SshKeygenMissing(
            "ssh-keygen, which signs and checks signatures, is not installed",
            hint="install OpenSSH's client: apt install openssh-client, dnf install openssh",
        ) from error


@contextmanager
def _open_descriptor(path: Path) -> Iterator[int]:
    with open_regular(path) as file:
        yield file.fileno()


def _default_key() -> Path:
    keys = [Path.home() / ".ssh" / name for name in DEFAULT_KEYS]
    for key in keys:
        if key.is_file():
            return key
    raise UsageError(
        f"no key in {keys[0].parent}: looked for {', '.join(DEFAULT_KEYS)}",
        hint="give one with --key FILE, or create one: ssh-keygen -t ed25519",
    )


def _cannot_sign(key: Path, output: str) -> UsageError:
    if "load public key" in output or "invalid format" in output:
        return UsageError(
            f"{key} is not an SSH key", hint="give the file of your private key with --key"
        )
    for pattern, meaning, hint in _FAULTS:
        if pattern in output:
            message = f"cannot sign with {key}: {meaning}"
            return UsageError(message, hint=hint.replace("KEY", str(key)))
    return UsageError(f"cannot sign with {key}: {_last_line(output)}")


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "ssh-keygen does not say why"
