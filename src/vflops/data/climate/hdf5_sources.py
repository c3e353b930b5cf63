"""Arrays of HDF5 whose values are in other files: virtual arrays and external storage.

HDF5 reads values of a missing source as 0, or as the array's fill value, without an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vflops.errors import UsageError

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
    array: Any, key: str, path: Path, check: Callable[[Any, str, Path], None]
) -> None:
    """Raise ``UsageError`` if a source of a virtual array is missing or does not fill its part.

    ``check`` checks the arrays of the sources.
    """
    mapped = array.id.get_space()
    mapped.select_none()
    for source in array.virtual_sources():
        try:
            _unite(mapped, source.vspace)
        except RuntimeError as error:  # of numbered sources, or one that may grow
            raise UsageError(
                f"{path}: its {key} are a virtual array without a fixed size, from "
                f"{source.file_name}: whether values are missing cannot be seen",
                hint="write all values into one file: h5repack OLD.h5 NEW.h5",
            ) from error
        if source.file_name == ".":
            _check_source(array.file, source, key, path, check)
            continue
        folders = [path.parent, path.resolve().parent, Path()]
        found = _find(source.file_name, [*_prefixes("HDF5_VDS_PREFIX", path), *folders])
        if found is None:
            raise _missing(key, path, source.file_name)
        for file in _opened(found, key, path):
            _check_source(file, source, key, found, check)
    missing = array.size - mapped.get_select_npoints()
    if missing:
        raise UsageError(
            f"{path}: {missing:,} of {array.size:,} values of its {key} are in no "
            "source of the virtual array",
            hint="map all values, or write them into one file where they are complete",
        )


def _unite(mapped: Any, part: Any) -> None:
    """Add a selection to ``mapped``; parts may overlap."""
    import h5py

    if part.get_select_npoints() == 0:
        return
    if part.get_select_type() == h5py.h5s.SEL_ALL:
        mapped.select_all()
        return
    one = (1,) * len(part.shape)
    for first, last in part.get_select_hyper_blocklist():
        block = tuple(int(end - start + 1) for start, end in zip(first, last, strict=True))
        start = tuple(map(int, first))
        mapped.select_hyperslab(start, one, None, block, h5py.h5s.SELECT_OR)


def _check_source(
    file: Any, source: Any, key: str, path: Path, check: Callable[[Any, str, Path], None]
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
    check(array, source.dset_name, path)


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
        yield file


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
