"""Verification that a run folder or an archive was not altered after the run was concluded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import computed_field

import vflops
from vflops.errors import FolderError
from vflops.publish.evidence.archive_limits import LIMITS
from vflops.publish.evidence.extract import extract
from vflops.publish.evidence.rederive import derived_here, matches_record
from vflops.publish.evidence.ssh_signature import Signature, check_signature
from vflops.record.files.document import Data
from vflops.record.folder import RunFolder
from vflops.record.installed_package import origin_fault
from vflops.record.readout.contents import Contents
from vflops.results.evidence.anonymous_record import anonymity_note
from vflops.results.evidence.committed_states import CommittedStates
from vflops.results.evidence.evidence_names import DERIVED, MANIFEST, SIGNATURE
from vflops.results.evidence.integrity import FolderIntegrity
from vflops.results.evidence.logged_hashes import hash_mismatches
from vflops.results.evidence.manifest import (
    Manifest,
    manifest_file,
    signature_file,
)

UNSIGNED = "not signed"


class Verification(Data):
    """The outcome of a verification."""

    run: str | None
    """The id of the run; None if it cannot be read."""
    alterations: tuple[str, ...]
    """One sentence per alteration, with the file and, for logs, the line."""
    notes: tuple[str, ...]
    """Remarks that are not alterations."""
    unconfirmed: tuple[str, ...] = ()
    """Derived files that match the manifest, but that this version cannot recompute."""
    signed: bool
    """Whether the manifest has a good signature by any key."""
    signer: str | None
    """The signer's name in the list of allowed signers; None if not listed or without a list."""
    signature: str
    """A description of the signature."""
    key: str | None = None
    """The type and the fingerprint of the key of a good signature."""
    signer_asked: bool = False
    """Whether a list of allowed signers was given, so that the signer must be in it."""
    unconcluded: str | None = None
    """Why the run is not concluded and has no manifest yet; None if it is concluded."""
    goes_on: bool = False
    """Whether the run is still in progress."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unaltered(self) -> bool:
        """Whether the run was concluded and not altered since."""
        return not self.alterations and self.unconcluded is None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def intact(self) -> bool:
        """Whether the run is unaltered, and every derived file follows from its record."""
        return self.unaltered and not self.unconfirmed

    @computed_field  # type: ignore[prop-decorator]
    @property
    def accepted(self) -> bool:
        """Whether the run is unaltered and, if a list was given, signed by someone on the list."""
        return self.unaltered and (self.signer is not None or not self.signer_asked)


def verify(path: Path, signers: Path | None = None, *, states: bool = True) -> Verification:
    """Compare a run folder or an archive with its manifest, and the manifest with its signature.

    If ``states``, the checkpoints and weights that it holds are compared with its log.
    """
    if path.is_file():
        with TemporaryDirectory() as temporary:
            return verify(extract(path, Path(temporary)), signers, states=states)
    LIMITS.check_folder(path)
    if not (path / "run.json").is_file() and not manifest_file(path).is_file():
        RunFolder.open(path)  # raises an error that says what is wrong
    return _verify(FolderIntegrity(path), signers, states=states)


def verify_contents(
    contents: Contents, signers: Path | None = None, recomputed: Collection[str] = DERIVED
) -> Verification:
    """Verify a run through ``contents``, which reads each file only once.

    Derived files that are not in ``recomputed`` are compared with the manifest only.
    """
    return _verify(contents.once(FolderIntegrity.of), signers, contents, recomputed)


def _verify(
    integrity: FolderIntegrity,
    signers: Path | None,
    contents: Contents | None = None,
    recomputed: Collection[str] = DERIVED,
    *,
    states: bool = False,
) -> Verification:
    altered: dict[str, Sequence[str]] = {"odd": integrity.listing.odd}
    notes, unconfirmed = list[str](), list[str]()
    signature = _check_signature_file(integrity.folder, signers)
    if not signature.good and signature.text != UNSIGNED:
        altered[SIGNATURE] = [f"{SIGNATURE}: {signature.text}"]
    manifest = unconcluded = None
    contents, read_error = (
        (contents, "") if contents is not None else _open_contents(integrity.folder)
    )
    try:
        manifest = integrity.manifest
    except FolderError as error:
        altered[MANIFEST] = [error.message]
    else:
        if manifest is None and contents is not None:
            unconcluded = contents.state.reason
            altered |= hash_mismatches(contents)
        if manifest is None and unconcluded is None:
            altered[MANIFEST] = [
                f"{MANIFEST}: missing, so the original content of the folder is not known"
            ]
    if manifest is not None:
        altered[MANIFEST] = integrity.line_pin_faults(manifest)
        altered |= integrity.comparison.altered
        notes += integrity.comparison.notes
        record_altered = any(altered.values())
        derived = _DerivedFiles(integrity, manifest, contents, () if record_altered else recomputed)
        altered |= dict(derived.alterations(notes, unconfirmed))
    if contents is not None:
        notes += _package_notes(contents)
    if note := anonymity_note(integrity.folder):
        notes.append(note)
    altered_names = {name for name, lines in altered.items() if lines}
    chain_faults: Iterable[str] = () if "run.json" in altered_names else (read_error,)
    if contents is not None:
        chain_faults = _chain_faults(contents, manifest, altered_names)
        if states and unconcluded is None:
            chain_faults = (*chain_faults, *CommittedStates(contents).faults())
    return Verification(
        run=contents.folder.record.id if contents is not None else None,
        alterations=(*(line for lines in altered.values() for line in lines), *chain_faults),
        notes=tuple(notes),
        unconfirmed=tuple(unconfirmed),
        signed=signature.good,
        signer=signature.signer,
        signature=signature.text,
        key=signature.key,
        signer_asked=signers is not None,
        unconcluded=unconcluded,
        goes_on=contents is not None and contents.in_progress,
    )


def _check_signature_file(folder: Path, signers: Path | None) -> Signature:
    if not signature_file(folder).exists():
        return Signature(False, None, UNSIGNED)
    if not manifest_file(folder).is_file():
        return Signature(False, None, f"{MANIFEST}, which it signs, is missing")
    return check_signature(manifest_file(folder), signature_file(folder), signers)


@dataclass(frozen=True)
class _DerivedFiles:
    """The derived files of a run, which are recomputed even if they match the manifest.

    A signer can pin a false file; what follows from the record does not depend on the signer.
    """

    integrity: FolderIntegrity
    manifest: Manifest
    contents: Contents | None
    recomputed: Collection[str]
    """The files to recompute even if they match the manifest; none if the record was altered."""

    def alterations(
        self, notes: list[str], unconfirmed: list[str]
    ) -> Iterator[tuple[str, list[str]]]:
        """Yield each file with its alterations; other differences are added to the lists."""
        pinned = {pin.path: pin for pin in self.manifest.derived}
        for name in DERIVED:
            if name not in self.integrity.listing.files:
                if name in pinned:
                    yield name, [f"{name}: missing; {_repair(name)}"]
                continue
            is_pinned = name in pinned and self.integrity.matches(pinned[name])
            if is_pinned and name not in self.recomputed:
                continue
            if self.contents is not None and matches_record(self.contents, name):
                if not is_pinned:
                    notes.append(f"{name}: regenerated later, and matches the recorded data")
            elif not is_pinned:
                fault = "matches neither the manifest nor the recorded data"
                yield name, [f"{name}: {fault}; {_repair(name)}"]
            elif self.contents is not None and derived_here(self.contents, name):
                fault = "matches the manifest, but does not follow from the recorded data"
                yield name, [f"{name}: {fault}; {_repair(name)}"]
            else:
                unconfirmed.append(f"{name}: {self._other_version()}; {_repair(name)}")

    def _other_version(self) -> str:
        versions = self.contents.folder.record.versions if self.contents is not None else {}
        return (
            f"cannot be recomputed by this version, {vflops.__version__}: the run states that it "
            f"was made by vflops {versions.get('vflops') or 'of an unknown version'} or with other "
            "packages, so the file may say anything"
        )


def _package_notes(contents: Contents) -> Iterator[str]:
    """Yield a note if the code that made the run is not known here."""
    package = contents.folder.record.package
    fault = origin_fault(package) if package is not None else None
    if package is not None and fault:
        yield (
            f"run.json: made by vflops {package.version} with the package {fault}: verify with the "
            "release that made it, or take its code as changed"
        )


def _repair(name: str) -> str:
    command = {"score.json": "score", "findings.json": "check"}.get(name, "report")
    return f"it is a derived file, which vflops {command} regenerates"


def _open_contents(folder: Path) -> tuple[Contents | None, str]:
    """Return the contents of the run, or None and why they cannot be read."""
    try:
        contents = Contents(RunFolder.open(folder))
        contents.history  # noqa: B018  reading it may raise
    except FolderError as error:
        return None, error.message
    return contents, ""


def _chain_faults(
    contents: Contents, manifest: Manifest | None, altered: set[str]
) -> Iterator[str]:
    """Yield a wrong run id, and breaks in the hash chains of logs that match the manifest."""
    id = contents.folder.record.id
    if manifest is not None and manifest.run != id:
        yield f"{MANIFEST}: it belongs to run {manifest.run}, but run.json belongs to run {id}"
    for job, logs in contents.history.jobs.items():
        altered_files = {name for name in altered if name.startswith(f"jobs/{job}/")}
        # Altered files, which are already reported, break the chain as well.
        if not altered_files and "run.json" not in altered:
            for log in logs:
                yield from (fault.replace(f"{contents.folder.path}/", "") for fault in log.faults)
