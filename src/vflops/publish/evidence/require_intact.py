"""The condition for signing or archiving a run: it is complete and unaltered."""

from __future__ import annotations

from vflops.errors import Hint, UsageError
from vflops.publish.evidence.verify import verify
from vflops.record.folder import RunFolder
from vflops.record.own_runs import finish_hint
from vflops.record.readout.contents import Contents
from vflops.results.evidence.evidence_names import SIGNATURE
from vflops.results.evidence.manifest import read_manifest, write_manifest


def require_intact(folder: RunFolder, action: str) -> None:
    """Raise unless a run is complete and unaltered; write its manifest if it has none.

    ``action``, such as "signed", is the participle for the error message.
    """
    contents = Contents(folder)
    state = contents.state
    if not state.complete:
        raise UsageError(
            f"{folder.path} cannot be {action}: it is not complete: {state.reason}",
            hint="wait until it ends" if contents.in_progress else finish_hint(folder.path),
        )
    if read_manifest(folder.path) is None:
        write_manifest(folder)
    alterations = verify(folder.path, states=False).alterations
    altered = [line for line in alterations if not line.startswith(SIGNATURE)]
    if altered:
        raise UsageError(
            f"{folder.path} cannot be {action}: it was altered after the run ended: {altered[0]}",
            hint=Hint("see all alterations", f"vflops verify {folder.path}"),
        )
