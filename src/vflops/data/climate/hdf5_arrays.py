"""The arrays of an HDF5 file, checked to be present, readable and completely written."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from vflops.data.climate.hdf5_sources import Location, check_external, check_virtual
from vflops.errors import UsageError


def array_of(file: Any, key: str, path: Path) -> Any:
    """Return the array ``key``; raise ``UsageError`` that says what is there instead."""
    import h5py

    item = file.get(key)
    if isinstance(item, h5py.Dataset):
        _check_filters(item, key, path)
        return item
    link = file.get(key, getlink=True)
    if item is not None:
        what = f": {key!r} is a {type(item).__name__.lower()}, expected an array"
    elif isinstance(link, h5py.ExternalLink):
        what = f": {key!r} is a link to {link.path} of {link.filename}, which does not exist"
    elif isinstance(link, h5py.SoftLink):
        what = f": {key!r} is a link to {link.path}, which does not exist"
    else:
        what = f" has no array {key!r}; it holds {', '.join(sorted(file)) or 'nothing'}"
    raise UsageError(
        f"{path}{what}",
        hint="expected images (N, 16, H, W) float32 and boxes (N, 15, 5): get the file again",
    )


def require_fully_written(
    array: Any, key: str, path: Path, within: frozenset[Location] = frozenset()
) -> None:
    """Raise ``UsageError`` if a part was never written, or is in a missing file.

    HDF5 would read it as 0. ``within`` are the virtual arrays that have this one as a source.
    """
    if array.chunks:
        unit = "chunks"
        total = math.prod(
            -(-size // chunk) for size, chunk in zip(array.shape, array.chunks, strict=True)
        )
        written = array.id.get_num_chunks()
    elif array.is_virtual:
        return check_virtual(array, key, path, require_fully_written, within)
    elif array.external:
        return check_external(array, key, path)
    else:
        unit, total, written = "bytes", array.nbytes, array.id.get_storage_size()
    if written < total:
        raise UsageError(
            f"{path}: {total - written:,} of {total:,} {unit} of its {key} were never written",
            hint="writing or copying the file did not finish: write it again, or get it again",
        )


def _check_filters(array: Any, key: str, path: Path) -> None:
    """Raise ``UsageError`` if values are compressed with a filter that is not installed."""
    import h5py

    properties = array.id.get_create_plist()
    for i in range(properties.get_nfilters()):
        number, _, _, name = properties.get_filter(i)
        if not h5py.h5z.filter_avail(number):
            label = f" ({name.decode(errors='replace')})" if name else ""
            raise UsageError(
                f"{path}: {key} are compressed with HDF5 filter {number}{label}, which is not "
                "installed here",
                hint="convert it where that filter is installed: h5repack -f GZIP=1 OLD.h5 NEW.h5; "
                "or set HDF5_PLUGIN_PATH to the folder of its plugin (pip install hdf5plugin "
                "installs the usual ones in hdf5plugin.PLUGIN_PATH)",
            )
