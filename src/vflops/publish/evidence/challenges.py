"""Challenges: issued and signed by the keeper of a list, and recognised by their signature."""

from __future__ import annotations

import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import ValidationError

from vflops.errors import FolderError, UsageError
from vflops.publish.evidence.ssh_signature import (
    Signature,
    SshKeygenMissing,
    check_signature,
    require_signers,
    sign_file,
)
from vflops.record.files.document import first_fault
from vflops.record.files.regular_file import read_regular
from vflops.record.folder import RunRecord
from vflops.record.formats.challenge import Challenge, utc_text
from vflops.results.check.challenge_rule import Demand

NAMESPACE = "vflops-challenge"
"""A key that may only sign runs cannot sign challenges."""
_NONCE_BYTES = 32


def issue(
    submitter: str, *, valid_s: float | None = None, key: Path | None = None
) -> tuple[Challenge, Path]:
    """Return a new signed challenge for ``submitter``, and the key that signed it."""
    now_s = time.time()
    try:
        challenge = Challenge(
            nonce=os.urandom(_NONCE_BYTES).hex(),
            submitter=submitter,
            issued_utc=utc_text(now_s),
            expires_utc=None if valid_s is None else utc_text(now_s + valid_s),
        )
    except ValidationError as error:
        raise UsageError(
            f"--for: {first_fault(error).replace('value error, ', '')}",
            hint="give an address, e.g. --for alice@example.org",
        ) from error
    except (OverflowError, ValueError) as error:  # a year that does not exist
        raise UsageError(f"--valid is too long: {error}", hint="e.g. --valid 30d") from error
    return sign_challenge(challenge, key)


def sign_challenge(challenge: Challenge, key: Path | None = None) -> tuple[Challenge, Path]:
    """Return a challenge with a signature, and the key that signed it."""
    with TemporaryDirectory() as temporary:
        signature = Path(temporary, "signature")
        used_key = sign_file(_body_file(challenge, temporary), signature, key, namespace=NAMESPACE)
        text = read_regular(signature).decode("ascii")
    return challenge.model_copy(update={"signature": text}), used_key


def read_challenge(path: Path) -> tuple[Challenge, str]:
    """Return the challenge in a file, and who signed it; raise if it was changed since.

    Without ``ssh-keygen`` the signature is not checked here, which the text then says.
    """
    again = "ask the keeper of the list for the file again"
    try:
        challenge = Challenge.read(path)
    except FolderError as error:
        raise UsageError(error.message, hint=again) from error
    try:
        signature = challenge_signature(challenge, None)
    except SshKeygenMissing:
        return challenge, "its signature cannot be checked here, without ssh-keygen"
    if not signature.good:
        raise UsageError(f"{path} was changed since it was signed: {signature.text}", hint=again)
    return challenge, f"signed by {signature.key}"


def challenge_signature(challenge: Challenge, signers: Path | None) -> Signature:
    """Return what is known about the signature of a challenge."""
    with TemporaryDirectory() as temporary:
        signature = Path(temporary, "signature")
        signature.write_text(challenge.signature, encoding="utf-8", errors="replace")
        body = _body_file(challenge, temporary)
        return check_signature(body, signature, signers, namespace=NAMESPACE)


def _body_file(challenge: Challenge, folder: str) -> Path:
    path = Path(folder, "challenge")
    path.write_bytes(challenge.body)
    return path


def demand(record: RunRecord, signers: Path, received_s: float | None = None) -> Demand:
    """Return what the rule ``challenge`` needs to know if the keeper of a list requires it.

    ``signers`` lists the keys that may issue challenges; ``received_s`` is when the run was handed
    in, if that is known.
    """
    require_signers(signers, NAMESPACE)
    if record.challenge is None:
        return Demand(None, "", received_s)
    signature = challenge_signature(record.challenge.issued, signers)
    return Demand(signature.signer, signature.text, received_s)
