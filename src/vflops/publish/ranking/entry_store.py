"""A store of entries in ``OUT/.entries/``, so that only changed submissions are read again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from vflops.publish.ranking.entry import FORMAT, Entry
from vflops.record.files import atomic


class Store:
    """Entries by key in a file with one line each, so that an interrupted build can be resumed."""

    def __init__(self, folder: Path, context: str) -> None:
        self._file = folder / "entries.jsonl"
        self._context = f"{FORMAT} {context}"
        atomic.make_folder(folder)
        self._lines = _read_lines(self._file)

    def __bool__(self) -> bool:
        """Whether any entry is stored."""
        return bool(self._lines)

    def key(self, fingerprint: str) -> str:
        """Return the key of an entry: a hash of the submission's fingerprint and of the rules."""
        return hashlib.sha256(f"{self._context} {fingerprint}".encode()).hexdigest()[:32]

    def get(self, key: str) -> Entry | None:
        """Return the entry; None if the submission has to be read."""
        line = self._lines.get(key)
        try:
            return None if line is None else Entry.model_validate_json(line)
        except ValidationError:
            return None

    def add(self, entries: Mapping[str, Entry]) -> None:
        """Store entries that were just read, except those that this machine failed to read."""
        lines = {key: entry.model_dump_json() for key, entry in entries.items() if not entry.retry}
        self._lines.update(lines)
        with self._file.open("a", encoding="utf-8") as file:
            file.writelines(f"{key} {line}\n" for key, line in lines.items())

    def keep_only(self, keys: set[str]) -> None:
        """Delete all other entries if they make up most of the file."""
        if len(self._lines) > 2 * len(keys) + 100:
            self._lines = {key: line for key, line in self._lines.items() if key in keys}
            text = "".join(f"{key} {line}\n" for key, line in self._lines.items())
            atomic.write_text(self._file, text)


def _read_lines(file: Path) -> dict[str, str]:
    """Return the lines of the file by key; an incomplete line is ignored."""
    if not file.is_file():
        return {}
    text = file.read_text(encoding="utf-8", errors="replace")
    pairs = (line.split(" ", 1) for line in text.split("\n") if line.endswith("}"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
