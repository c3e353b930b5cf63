"""What of a run folder, or of an archive, is not as it was when the run was concluded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import computed_field

from vflops.errors import FolderError
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.rederive import made_again
from vflops.publish.evidence.ssh_signature import Signature, check_signature
from vflops.record.files.document import Data
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.evidence.evidence_names import DERIVED, MANIFEST, SIGNATURE
from vflops.results.evidence.integrity import FolderIntegrity
from vflops.results.evidence.logged_hashes import contradicted
from vflops.results.evidence.manifest import (
    Manifest,
    manifest_file,
    signature_file,
)

UNSIGNED = "not signed"


class Verification(Data):
    """What was found; a run is intact where nothing was altered."""

    run: str | None
    """Its id; None: not even that can be read."""
    alterations: tuple[str, ...]
    """What is not as it was, each with the file, and the line where a log has lines."""
    notes: tuple[str, ...]
    """What is worth knowing and alters nothing."""
    signed: bool
    """Whether the manifest has a good signature, whoever made it."""
    signer: str | None
    """Who made it, by the list of allowed signers; None: unknown, or nobody was asked."""
    signature: str
    """The same in words."""
    signer_asked: bool = False
    """Whether a list of allowed signers was given."""
    unconcluded: str | None = None
    """Why there is nothing yet that it could have been altered from: the run has not ended."""
    goes_on: bool = False
    """Whether a living process is still at it."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def intact(self) -> bool:
        """Whether the run was concluded, and nothing was altered since."""
        return not self.alterations and self.unconcluded is None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def accepted(self) -> bool:
        """Whether it is intact and, where a list was given, signed by one of that list."""
        return self.intact and (self.signer is not None or not self.signer_asked)


def verify(path: Path, signers: Path | None = None) -> Verification:
    """Compare a run folder or an archive with its manifest, and that with its signature."""
    if path.is_file():
        with TemporaryDirectory() as place:
            return _verify(FolderIntegrity(extract(path, Path(place))), signers)
    if not (path / "run.json").is_file() and not manifest_file(path).is_file():
        RunFolder.open(path)  # says why it is none
    return _verify(FolderIntegrity(path), signers)


def verify_contents(contents: Contents, signers: Path | None = None) -> Verification:
    """The same of a run that rules read too: no file of it is read a second time for them."""
    return _verify(contents.once(FolderIntegrity.of), signers, contents)


def _verify(
    held: FolderIntegrity, signers: Path | None, contents: Contents | None = None
) -> Verification:
    altered: dict[str, Sequence[str]] = {"odd": held.listing.odd}
    notes = list[str]()
    signature = _signature(held.folder, signers)
    if not signature.good and signature.words != UNSIGNED:
        altered[SIGNATURE] = [f"{SIGNATURE}: {signature.words}"]
    manifest = unconcluded = None
    contents, unread = (contents, "") if contents is not None else _opened(held.folder)
    try:
        manifest = held.manifest
    except FolderError as error:
        altered[MANIFEST] = [error.message]
    else:
        if manifest is None and contents is not None:
            unconcluded = contents.state.reason
            altered |= contradicted(contents)
        if manifest is None and unconcluded is None:
            altered[MANIFEST] = [f"{MANIFEST}: missing, so nothing says what the folder held"]
    if manifest is not None:
        altered[MANIFEST] = held.false_lines(manifest)
        altered |= held.compared.altered
        notes += held.compared.notes
        altered |= dict(_derived(held, manifest, notes))
    wrong = {name for name, words in altered.items() if words}
    chain: Iterable[str] = () if "run.json" in wrong else (unread,)
    if contents is not None:
        chain = _broken(contents, manifest, wrong)
    return Verification(
        run=contents.folder.record.id if contents is not None else None,
        alterations=(*(line for words in altered.values() for line in words), *chain),
        notes=tuple(notes),
        signed=signature.good,
        signer=signature.signer,
        signature=signature.words,
        signer_asked=signers is not None,
        unconcluded=unconcluded,
        goes_on=contents is not None and contents.in_progress,
    )


def _signature(folder: Path, signers: Path | None) -> Signature:
    if not signature_file(folder).exists():
        return Signature(False, None, UNSIGNED)
    if not manifest_file(folder).is_file():
        return Signature(False, None, f"{MANIFEST}, which it signs, is missing")
    return check_signature(manifest_file(folder), signature_file(folder), signers)


def _derived(
    held: FolderIntegrity, manifest: Manifest, notes: list[str]
) -> Iterator[tuple[str, list[str]]]:
    """What was altered of each file that follows from the record: it may have been made again."""
    pinned = {pin.path: pin for pin in manifest.derived}
    for name in DERIVED:
        if name not in held.listing.files:
            if name in pinned:
                yield name, [f"{name}: missing; {_cure(name)}"]
        elif name not in pinned or not held.is_as(pinned[name]):
            if made_again(held.folder, name):
                notes.append(f"{name}: made again since, and what the record gives")
            else:
                words = "neither as it was nor what the record gives"
                yield name, [f"{name}: {words}; {_cure(name)}"]


def _cure(name: str) -> str:
    command = {"score.json": "score", "findings.json": "check"}.get(name, "report")
    return f"it is derived: vflops {command} makes it again"


def _opened(folder: Path) -> tuple[Contents | None, str]:
    """The run, or why it cannot be read."""
    try:
        contents = Contents(RunFolder.open(folder))
        contents.history  # noqa: B018  it is read, or says why not
    except FolderError as error:
        return None, error.message
    return contents, ""


def _broken(contents: Contents, manifest: Manifest | None, altered: set[str]) -> Iterator[str]:
    """What is wrong with the run's id, or with the chains of logs that are as pinned."""
    id = contents.folder.record.id
    if manifest is not None and manifest.run != id:
        yield f"{MANIFEST}: of run {manifest.run}, and run.json is of {id}"
    for job, logs in contents.history.jobs.items():
        own = {name for name in altered if name.startswith(f"jobs/{job}/")}
        if not own and "run.json" not in altered:  # else they break for that
            for log in logs:
                yield from (fault.replace(f"{contents.folder.path}/", "") for fault in log.faults)
