"""The content hash of a split: equal for equal samples, whatever their order, names and files.

    values digest   SHA-256 of a sample's type, shape and stored values
    sample digest   SHA-256 of the values digest and the annotation: the label, or the boxes
    content hash    SHA-256 of all sample digests, sorted and concatenated

The values digest leaves the annotation out, so that the same image is recognised under two labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vflops.data.packed_index import REPAIR, SplitContents, StoredFile, cannot_read
from vflops.data.process_pool import OnProgress
from vflops.errors import FolderError
from vflops.record.files import atomic

DIGEST_BYTES = hashlib.sha256().digest_size

Digests = NDArray[np.uint8]
"""One values digest of 32 bytes per sample, in the order of the samples."""

_BLOCK_BYTES = 1 << 22


def values_header(dtype: str, shape: Sequence[int]) -> bytes:
    """Return what is hashed before the values of a sample: ``uint8 32x32x3``."""
    return f"{dtype} {'x'.join(map(str, shape))}\n".encode()


def values_digest(header: bytes, values: memoryview | bytes) -> bytes:
    """Return the values digest of a sample; releases the GIL for more than 2 kB."""
    hashed = hashlib.sha256(header)
    hashed.update(values)
    return hashed.digest()


def hash_shard(
    path: Path, header: bytes, size: int, stride: int, on_bytes: OnProgress | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the SHA-256 of a shard and the values digest of each sample, reading the file once.

    Samples of ``size`` bytes start at multiples of ``stride``.
    """
    whole, digests = hashlib.sha256(), []
    try:
        total = path.stat().st_size
        with path.open("rb", buffering=_BLOCK_BYTES) as file:
            for _ in range(total // stride):
                sample = hashlib.sha256(header)
                for start in range(0, size, _BLOCK_BYTES):
                    block = file.read(min(_BLOCK_BYTES, size - start))
                    sample.update(block)
                    whole.update(block)
                    if on_bytes is not None:
                        on_bytes(len(block), total)
                whole.update(file.read(stride - size))
                digests.append(sample.hexdigest())
    except OSError as error:
        raise cannot_read(path, error) from error
    return whole.hexdigest(), tuple(digests)


def content_hash(digests: Digests, annotations: Iterable[bytes]) -> str:
    """Return the content hash of a split from the values digest and annotation of each sample.

    The digests are sorted to be independent of the order. A sum of the digests would be, too, but
    it could be forged: among enough samples of one's own, some set has any given sum (the
    generalised birthday problem), so other data with the same hash could be found.
    """
    samples = [
        hashlib.sha256(row.tobytes() + annotation).digest()
        for row, annotation in zip(digests, annotations, strict=True)
    ]
    return hashlib.sha256(b"".join(sorted(samples))).hexdigest()


def as_digests(texts: Sequence[str]) -> Digests:
    """Return hexadecimal digests as an array."""
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(-1, DIGEST_BYTES)


def count_leaks(train: Digests, evaluated: Sequence[Digests]) -> int:
    """Return the number of samples for evaluation whose values are also in the training split."""
    trained = set(_rows(train))
    return sum(row in trained for split in evaluated for row in _rows(split))


def _rows(digests: Digests) -> list[bytes]:
    return [row.tobytes() for row in digests]


def write_digests(
    folder: Path, split: str, digests: Digests, annotations: Iterable[bytes]
) -> SplitContents:
    """Write the digests of a split into ``folder`` and return the entry of the index."""
    data = digests.tobytes()
    file = f"{split}.digests"
    atomic.write_bytes(folder / file, data)
    return SplitContents(
        sha256=content_hash(digests, annotations),
        digests=StoredFile(file=file, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()),
    )


def read_digests(folder: Path, contents: SplitContents, samples: int) -> Digests:
    """Return the digests of a split; raise ``FolderError`` if they are not those of the index."""
    path = folder / contents.digests.file
    try:
        data = path.read_bytes()
    except OSError as error:
        raise cannot_read(path, error) from error
    if hashlib.sha256(data).hexdigest() != contents.digests.sha256:
        raise FolderError(f"{path} differs from what was packed", hint=REPAIR)
    if len(data) != samples * DIGEST_BYTES:
        raise FolderError(f"{path} does not have one digest per sample", hint=REPAIR)
    return np.frombuffer(data, np.uint8).reshape(samples, DIGEST_BYTES)
