"""The fields that the reports of all data checks share."""

from __future__ import annotations

from vflops.record.files.document import Document


class DataReport(Document):
    """The result of reading a folder of data completely."""

    source: str
    ok: bool
    """Whether nothing in the folder would harm a run."""
    problems: tuple[str, ...]
    """Why the folder is not ok, one sentence each."""
    notes: tuple[str, ...]
    """What is unusual but harmless."""
