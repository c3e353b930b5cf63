"""The files of a run are read once, also those that cannot be read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from vflops.errors import FolderError
from vflops.record.folder import RunFolder
from vflops.record.formats.system import SystemRecord
from vflops.record.readout.contents import Contents


def test_a_damaged_document_is_read_once(run_folder: RunFolder) -> None:
    contents, path = Contents(run_folder), run_folder.system_file
    content = path.read_bytes()
    path.write_text("{")
    with pytest.raises(FolderError) as first:
        contents.read(SystemRecord, path)
    path.write_bytes(content)
    with pytest.raises(FolderError) as second:
        contents.read(SystemRecord, path)
    assert (second.value.message, second.value.hint) == (first.value.message, first.value.hint)
    assert Contents(run_folder).read(SystemRecord, path)


def test_a_fault_of_the_machine_is_tried_again(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents, path = Contents(run_folder), run_folder.system_file

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("vflops.record.files.document.read_bytes", fail)
        with pytest.raises(FolderError, match="Input/output error"):
            contents.read(SystemRecord, path)
    assert contents.read(SystemRecord, path)
