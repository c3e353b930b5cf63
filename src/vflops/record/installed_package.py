"""The installed package as a hash, which shows whether a run was made by released code.

The hash covers every file of the package with its path, except for caches of bytecode and for the
list of releases, which contains the hash itself. It is the same in a checkout, in a wheel and in
any installed copy.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import Field

import vflops
from vflops.errors import FolderError
from vflops.record.files.digest import file_digest
from vflops.record.files.document import Data

_ROOT = Path(__file__).parents[1]
RELEASES = Path(__file__).with_name("releases.json")
"""The hash of each release by version; ``python -m tools.note_release`` adds one."""
_BYTECODE = "__pycache__"
_EXTENSION_POINTS = "vflops."
_CHART_PACKAGES = ("altair", "vl-convert-python")


class PackageRecord(Data):
    """The code that made a run: the package vflops, and packages that extend it."""

    version: str
    sha256: str | None
    """The hash of the package; None if its files cannot be read, for example inside a zip file."""
    compiled: tuple[str, ...] = ()
    """Compiled modules in the package, by path; no release has any."""
    extensions: dict[str, str | None] = Field(default_factory=dict)
    """The hash of each package that extends vflops, by name and version; None as for ``sha256``."""
    charts: dict[str, str | None] = Field(default_factory=dict)
    """The versions of the packages that draw charts, on which the bytes of a report depend."""


@cache
def installed_package() -> PackageRecord:
    """Return the description of this installation; it takes about 50 ms, once per process."""
    return PackageRecord(
        version=vflops.__version__,
        sha256=tree_hash(_ROOT, without=RELEASES),
        compiled=_compiled(_ROOT),
        extensions=dict(_extensions()),
        charts=_chart_versions(),
    )


def _chart_versions() -> dict[str, str | None]:
    from importlib.metadata import PackageNotFoundError, version

    versions: dict[str, str | None] = {}
    for name in _CHART_PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions


def tree_hash(root: Path, without: Path | None = None) -> str | None:
    """Return the hash of all files below ``root``, or of a single file; None if unreadable."""
    try:
        lines = [
            f"{file_digest(path).sha256} {path.relative_to(root).as_posix()}\n"
            for path in ([root] if root.is_file() else _files(root))
            if path != without
        ]
    except (FolderError, OSError):
        return None
    text = "".join(sorted(lines))
    return hashlib.sha256(text.encode()).hexdigest() if lines else None


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if _BYTECODE not in path.parts and path.is_file():
            yield path


def _compiled(root: Path) -> tuple[str, ...]:
    suffixes = tuple(importlib.machinery.EXTENSION_SUFFIXES)
    compiled = (path for path in _files(root) if path.name.endswith(suffixes))
    return tuple(sorted(path.relative_to(root).as_posix() for path in compiled))


def _extensions() -> Iterator[tuple[str, str | None]]:
    """Yield the packages that have entry points of vflops, and the hashes of their modules."""
    from importlib.metadata import distributions  # its import is slow

    modules = {
        f"{distribution.name} {distribution.version}: {module}": module
        for distribution in distributions()
        for entry in distribution.entry_points
        if entry.group.startswith(_EXTENSION_POINTS)
        for module in [entry.value.partition(":")[0].partition(".")[0]]
    }
    for name, module in sorted(modules.items()):
        yield name, _module_hash(module)


def _module_hash(module: str) -> str | None:
    """Return the hash of a top-level module or package, which is not imported."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    return tree_hash(origin.parent if spec.submodule_search_locations else origin)


@cache
def release_hashes() -> dict[str, str]:
    """Return the hash of each known release, by version."""
    hashes: dict[str, str] = json.loads(RELEASES.read_text(encoding="utf-8"))
    return hashes


def origin_fault(package: PackageRecord | None) -> str | None:
    """Return why a run's package is neither a known release nor the one installed here.

    None if it is one of them: a run of a development version is accepted by the same version.
    """
    if package is None or package.sha256 is None:
        return "not recorded"
    known = release_hashes().get(package.version)
    if package.sha256 in (known, installed_package().sha256):
        return None
    return f"{package.sha256[:12]}, not a known release"
