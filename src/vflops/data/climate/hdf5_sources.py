"""Arrays of HDF5 whose values are in other files: virtual arrays and external storage.

HDF5 reads values of a missing source as 0, or as the array's fill value, without an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vflops.errors import UsageError

Location = tuple[Path, str]
"""The file of an array, without links, and its name there."""
SourceCheck = Callable[[Any, str, Path, frozenset[Location]], None]

_HINT = (
    "get that file too and put it there, or write all values into one file where they are "
    "complete: h5repack OLD.h5 NEW.h5"
)


def check_external(array: Any, key: str, path: Path) -> None:
    """Raise ``UsageError`` if a file with values of an array is missing or too short."""
    left = array.nbytes
    for name, offset, size in array.external:
        needed = min(size, left)  # the size of the last one may be unlimited
        left -= needed
        folders = _prefixes("HDF5_EXTFILE_PREFIX", path)
        source = _find(str(name), folders[:1] or [Path()])
        if source is None:
            raise _missing(key, path, str(name))
        have = max(source.stat().st_size - offset, 0)
        if have < needed:
            raise UsageError(
                f"{path}: {needed - have:,} bytes of its {key} are missing at the end of {source}",
                hint="get that file again",
            )


def check_virtual(
    array: Any, key: str, path: Path, check: SourceCheck, within: frozenset[Location]
) -> None:
    """Raise ``UsageError`` if a source of a virtual array is missing or does not fill its part.

    ``check`` checks the arrays of the sources. ``within`` are the virtual arrays that have this one
    as a source.
    """
    location = path.resolve(), array.name
    if location in within:
        raise UsageError(
            f"{path}: its {key} are a virtual array that has itself as a source",
            hint="map the arrays that have the values, or write the values into one file",
        )
    inner = within | {location}
    sources = array.virtual_sources()
    mapped = _mapped_values(array, sources, key, path)
    folders = [*_prefixes("HDF5_VDS_PREFIX", path), path.parent, Path(), path.resolve().parent]
    for source in sources:
        if source.file_name == ".":
            _check_source(array.file, source, key, path, check, inner)
            continue
        found = _find(source.file_name, folders)
        if found is None:
            raise _missing(key, path, source.file_name)
        for file in _opened(found, key, path):
            _check_source(file, source, key, found, check, inner)
    if mapped < array.size:
        raise UsageError(
            f"{path}: {array.size - mapped:,} of {array.size:,} values of its {key} are in no "
            "source of the virtual array",
            hint="map all values, or write them into one file where they are complete",
        )


def _mapped_values(array: Any, sources: Sequence[Any], key: str, path: Path) -> int:
    """Return how many values some source has; parts may overlap."""
    import h5py

    union = h5py.h5s.create_simple(array.shape)
    union.select_none()
    for source in sources:
        try:
            source.vspace.get_select_npoints()
        except RuntimeError as error:  # of numbered sources, or one that may grow
            raise UsageError(
                f"{path}: its {key} are a virtual array without a fixed size, from "
                f"{source.file_name}: whether values are missing cannot be seen",
                hint="write all values into one file: h5repack OLD.h5 NEW.h5",
            ) from error
        _add_selection(union, source.vspace)
    return int(union.get_select_npoints())


def _add_selection(union: Any, part: Any) -> None:
    """Add what ``part`` selects to what ``union`` selects."""
    import h5py

    kind, h5s = part.get_select_type(), h5py.h5s
    if kind == h5s.SEL_ALL:
        union.select_all()
    elif kind == h5s.SEL_HYPERSLABS and part.is_regular_hyperslab():
        start, stride, count, block = part.get_regular_hyperslab()
        union.select_hyperslab(start, count, stride, block, op=h5s.SELECT_OR)
    elif kind == h5s.SEL_HYPERSLABS:
        for first, last in part.get_select_hyper_blocklist():
            block = tuple(int(size) for size in last - first + 1)
            one = (1,) * len(block)
            start = tuple(int(index) for index in first)
            union.select_hyperslab(start, one, one, block, op=h5s.SELECT_OR)


def _check_source(
    file: Any,
    source: Any,
    key: str,
    path: Path,
    check: SourceCheck,
    within: frozenset[Location],
) -> None:
    """Check one source array, and that it is as large as the virtual array expects."""
    import h5py

    array = file.get(source.dset_name)
    if not isinstance(array, h5py.Dataset):
        raise UsageError(
            f"{path} has no array {source.dset_name!r}, which has values of {key}",
            hint="get the file again",
        )
    if not _is_large_enough(array, source):
        raise UsageError(
            f"{path}: {source.dset_name!r} is {array.shape}, smaller than the part of {key} that "
            "it has",
            hint="get the file again",
        )
    check(array, source.dset_name, path, within)


def _is_large_enough(array: Any, source: Any) -> bool:
    """Whether a source array has all values that a virtual array takes from it."""
    import h5py

    if source.src_space.get_select_type() == h5py.h5s.SEL_ALL:  # has no shape
        return bool(array.size >= source.vspace.get_select_npoints())
    _, last = source.src_space.get_select_bounds()
    sizes = zip(array.shape, last, strict=False)
    return len(last) == array.ndim and all(size > end for size, end in sizes)


def _opened(found: Path, key: str, path: Path) -> Iterator[Any]:
    import h5py

    try:
        file = h5py.File(found, "r")
    except OSError as error:
        raise UsageError(
            f"{path}: its {key} are partly in {found}, which cannot be read: {error}",
            hint="get that file again",
        ) from error
    with file:
        yield file  # the block of open_hdf5 around it handles damaged files


def _missing(key: str, path: Path, name: str) -> UsageError:
    return UsageError(f"{path}: its {key} are partly in {name}, which does not exist", hint=_HINT)


def _prefixes(variable: str, path: Path) -> list[Path]:
    """Return the folders in a variable of HDF5, which may name the folder of the file itself."""
    parts = os.environ.get(variable, "").split(os.pathsep)
    return [Path(part.replace("${ORIGIN}", str(path.parent))) for part in parts if part]


def _find(name: str, folders: list[Path]) -> Path | None:
    """Return the file as HDF5 finds it; an absolute name may also be found by its last part."""
    tried = [Path(name)] if Path(name).is_absolute() else []
    tried += [folder / (Path(name).name if tried else name) for folder in folders]
    return next((candidate for candidate in tried if candidate.is_file()), None)
