"""A digest of the software that is installed here, which identifies the image of a container."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

_LISTS = (
    "var/lib/dpkg/status",
    "var/lib/dpkg/info/*.md5sums",
    "var/lib/rpm/rpmdb.sqlite",
    "usr/lib/sysimage/rpm/rpmdb.sqlite",
    "lib/apk/db/installed",
)
"""What the package managers of Linux distributions write about the files that they installed."""
_PYTHON_LISTS = "*.dist-info/RECORD"


def installed_digest(root: Path = Path("/"), python: Sequence[str] | None = None) -> str | None:
    """Return the SHA-256 of the lists of installed files; None if there are no lists.

    The lists of Python packages and of Debian have a hash of each file. They identify the software
    in milliseconds, whereas the files themselves would take seconds on every node. Two images that
    are built from the same packages have the same digest.

    ``python`` are the folders of Python packages; by default those of this interpreter.
    """
    folders = sys.path if python is None else python
    lists = [path for pattern in _LISTS for path in root.glob(pattern)]
    lists += [path for folder in folders if folder for path in Path(folder).glob(_PYTHON_LISTS)]
    return _digest(lists, root) if lists else None


def _digest(lists: Iterable[Path], root: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(set(lists)):
        name = path.relative_to(root) if path.is_relative_to(root) else path
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{name} {content}\n".encode())
    return total.hexdigest()
