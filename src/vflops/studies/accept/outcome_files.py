"""Writes the outcome of an acceptance test: as data, for CI, and as a page to sign."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.studies.accept.acceptance import Acceptance

_STEM = "acceptance"


def write_outcome(
    acceptance: Acceptance, folder: Path, *, reference: Path | None = None, pdf: bool = False
) -> list[Path]:
    """Write ``acceptance.json``, ``.xml`` and ``.html``, with ``pdf`` also ``.pdf``, to a folder.

    ``reference`` is the file of the reference, whose hash is on the page.
    """
    from vflops.studies.accept.accept_page import write_page, write_pdf
    from vflops.studies.accept.junit import write_junit

    atomic.make_folder(folder)
    data, xml, page = (folder / f"{_STEM}.{kind}" for kind in ("json", "xml", "html"))
    acceptance.write(data)
    write_junit(acceptance, xml)
    write_page(
        acceptance,
        page,
        judged_utc=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        reference_sha256=file_digest(reference).sha256 if reference else None,
    )
    if not pdf:
        return [data, xml, page]
    printed = folder / f"{_STEM}.pdf"
    write_pdf(page, printed)
    return [data, xml, page, printed]
