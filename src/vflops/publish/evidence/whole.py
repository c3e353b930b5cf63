"""What may be signed or handed on: a run that came to its end, and is as it was then."""

from __future__ import annotations

from vflops.errors import UsageError
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.record.readout.contents import Contents
from vflops.results.evidence.evidence_names import SIGNATURE
from vflops.results.evidence.manifest import read_manifest, write_manifest


def must_be_whole(folder: RunFolder, done: str) -> None:
    """Refuse a run that is not ``done`` (signed, packed) because it goes on or was altered.

    One that has ended and has no manifest gets it.
    """
    contents = Contents(folder)
    state = contents.state
    if not state.complete:
        resume = f"go on with it first: vflops resume {folder.path}"
        raise UsageError(
            f"{folder.path} is not {done}: it is not complete: {state.reason}",
            hint="wait until it ends" if contents.in_progress else resume,
        )
    if read_manifest(folder.path) is None:
        write_manifest(folder)
    found = [line for line in verify(folder.path).alterations if not line.startswith(SIGNATURE)]
    if found:
        raise UsageError(
            f"{folder.path} is not {done}: it is not as it was concluded: {found[0]}",
            hint=f"see all of it: vflops verify {folder.path}",
        )
