"""The arrays of an HDF5 file: there, readable and written to their end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from vflops.errors import UsageError


def array_of(file: Any, key: str, path: Path) -> Any:
    """The array of that name, or an error that says what is there instead."""
    import h5py

    found = file.get(key)
    if isinstance(found, h5py.Dataset):
        _refuse_unknown_filters(found, key, path)
        return found
    link = file.get(key, getlink=True)
    if found is not None:
        what = f": {key!r} is a {type(found).__name__.lower()}, expected an array"
    elif isinstance(link, h5py.ExternalLink):
        what = f": {key!r} is a link to {link.path} of {link.filename}, which is not there"
    elif isinstance(link, h5py.SoftLink):
        what = f": {key!r} is a link to {link.path}, which is not there"
    else:
        what = f" has no array {key!r}; it holds {', '.join(sorted(file)) or 'nothing'}"
    raise UsageError(
        f"{path}{what}",
        hint="expected images (N, 16, H, W) float32 and boxes (N, 15, 5): get the file again",
    )


def refuse_unwritten(array: Any, key: str, path: Path) -> None:
    """An error where a part was never written: HDF5 gives it room late, and reads it as 0."""
    if array.chunks:
        unit = "chunks"
        whole = math.prod(
            -(-size // of) for size, of in zip(array.shape, array.chunks, strict=True)
        )
        written = array.id.get_num_chunks()
    elif array.is_virtual or array.external:  # its values lie in other files
        return
    else:
        unit, whole, written = "bytes", array.nbytes, array.id.get_storage_size()
    if written < whole:
        raise UsageError(
            f"{path}: {whole - written:,} of {whole:,} {unit} of its {key} were never written",
            hint="who wrote it did not end, or the copy did not: write it again, or get it again",
        )


def _refuse_unknown_filters(array: Any, key: str, path: Path) -> None:
    """An error where values went through a filter that HDF5 does not have here."""
    import h5py

    made = array.id.get_create_plist()
    for place in range(made.get_nfilters()):
        number, _, _, name = made.get_filter(place)
        if not h5py.h5z.filter_avail(number):
            called = f" ({name.decode(errors='replace')})" if name else ""
            raise UsageError(
                f"{path}: {key} are compressed with HDF5 filter {number}{called}, which is not "
                "installed here",
                hint="store it anew where that filter is: h5repack -f GZIP=1 OLD.h5 NEW.h5; or "
                "name the folder of its plugin in HDF5_PLUGIN_PATH (pip install hdf5plugin "
                "brings the usual ones, in hdf5plugin.PLUGIN_PATH)",
            )
