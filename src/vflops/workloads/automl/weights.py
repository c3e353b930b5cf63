"""The weights of trained candidates, which their children start from."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch import Tensor, nn

from vflops.errors import FolderError
from vflops.record.files import atomic
from vflops.train.state_file import pack, read_state_file, unpack


class WeightStore:
    """The files ``RUN/weights/<candidate>.state``, used only within the run.

    Files are written atomically, and verified when they are read.
    """

    def __init__(self, run: Path, *, create: bool = True) -> None:
        self._folder = run / "weights"
        if create:
            atomic.make_folder(self._folder)

    def save(self, candidate: str, weights: dict[str, Tensor]) -> str:
        """Write the state of a trained model, and return its hash.

        If a power failure loses them, its children cannot be trained, and the search continues.
        """
        state = pack(weights)
        with ThreadPoolExecutor(1) as pool:  # the hash takes as long as writing the file
            digest = pool.submit(state.sha256)
            atomic.write_bytes(self._file(candidate), state.to_bytes(), durable=False)
        return digest.result()

    def load(self, candidate: str, sha256: str | None, model: nn.Module) -> None:
        """Load the weights of ``candidate`` into ``model``; raise ``FolderError`` if damaged."""
        path = self._file(candidate)
        try:
            data = read_state_file(path)
        except OSError as error:
            raise FolderError(f"cannot read {path}: {error.strerror or error}") from error
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise FolderError(f"{path} does not contain what was written: its hash differs")
        model.load_state_dict(unpack(data, path.name))

    def has(self, candidate: str) -> bool:
        """Whether the weights of ``candidate`` were stored."""
        return self._file(candidate).is_file()

    def _file(self, candidate: str) -> Path:
        return self._folder / f"{candidate}.state"
