"""The runs that this user started on this machine, as recorded outside of their folders.

A run folder can come from anyone and say anything about itself, so whether its programs may run is
not decided by its contents. ``RunFolder.create`` records the hash of ``run.json``, which includes
the id of the run, in a folder of the user. A run folder stays its user's own if it is moved or
copied; an archive that was extracted never is.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from vflops.errors import VflopsError
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest

_MARK = ".foreign"
"""The file in a run folder that says that it comes from an archive, or has settings of one."""
_NOT_OWN = "it was not started here: ask its author for the finished run"


def state_folder() -> Path | None:
    """Return the folder with what is known of this user's runs; None if they have no home.

    It is ``vflops`` in ``$XDG_STATE_HOME``, by default in ``~/.local/state``.
    """
    configured = Path(os.environ.get("XDG_STATE_HOME", ""))
    if configured.is_absolute():  # others are ignored, as the XDG specification says
        return configured / "vflops"
    try:
        return Path.home() / ".local" / "state" / "vflops"
    except RuntimeError:
        return None


def remember(digest: str, note: str) -> None:
    """Record that a file with this SHA-256 was written here; ``note`` says which one it is.

    It does nothing if the folder cannot be written to: users are then asked before a program of
    the run is started again.
    """
    folder = state_folder()
    if folder is None:
        return
    with suppress(VflopsError, OSError):
        entry = _entry(folder, digest)
        for private in (folder, entry.parent):  # no other user may add an entry
            private.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic.write_bytes(
            entry, f"{note}\n".encode(errors="backslashreplace"), durable=False, private=True
        )


def is_remembered(digest: str) -> bool:
    """Whether a file with this SHA-256 was written here."""
    folder = state_folder()
    try:
        return folder is not None and _entry(folder, digest).is_file()
    except OSError:
        return False


def _entry(folder: Path, digest: str) -> Path:
    return folder / "written" / digest


def is_own(run: Path) -> bool:
    """Whether the run in a folder was started by this user on this machine."""
    try:
        return not (run / _MARK).exists() and is_remembered(file_digest(run / "run.json").sha256)
    except (OSError, VflopsError):
        return False


def mark_foreign(run: Path) -> None:
    """Mark the run in a folder as one whose files or settings were written by others."""
    atomic.write_text(run / _MARK, "its files or settings were written by others\n")


def inherit_mark(run: Path, source: Path) -> None:
    """Mark a new run whose settings were copied from ``source``, unless that is the user's own."""
    if not is_own(source):
        mark_foreign(run)


def finish_hint(run: Path, shown: object = None) -> str:
    """Return how to finish an incomplete run; ``shown`` is its path as printed.

    It never suggests to run what a stranger wrote.
    """
    return f"resume it: vflops resume {shown or run}" if is_own(run) else _NOT_OWN


def unrecorded_reason() -> str | None:
    """Return why new runs are not recorded as those of the user; None if they are."""
    folder = state_folder()
    if folder is None:
        return "you have no home folder in which vflops could record your runs"
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return None
    return f"vflops cannot write to {existing}, where it would record your runs"
