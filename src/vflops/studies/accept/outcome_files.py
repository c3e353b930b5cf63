"""Writes the outcome of an acceptance test: as data, for CI, and as a page to sign."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from vflops.errors import UsageError
from vflops.record.files import atomic
from vflops.record.files.digest import file_digest
from vflops.studies.accept.acceptance import Acceptance
from vflops.studies.accept.reference import Reference

_STEM = "acceptance"
_DIFFERENCES = {
    "name": "it has another name",
    "contract": "it names another contract",
    "task": "its task differs",
    "runs": "it was written from other runs",
}


def earlier_outcome(folder: Path, reference: Reference) -> Acceptance | None:
    """Return the outcome that ``folder`` holds, or raise ``UsageError`` if it is of another test.

    Changed promises are the same test; another name, contract, task or origin is another one.
    """
    path = folder / f"{_STEM}.json"
    if not path.is_file():
        return None
    earlier = Acceptance.read(path)
    for key in ("name", "contract", "task", "runs"):
        if getattr(earlier.reference, key) != getattr(reference, key):
            raise UsageError(
                f"{folder} holds the outcome of another reference ({earlier.reference.name}:"
                f" {_DIFFERENCES[key]})",
                hint="keep both: add --out DIR; or move that folder away",
            )
    return earlier


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
    printed = folder / f"{_STEM}.pdf"
    if not pdf:
        printed.unlink(missing_ok=True)  # that of a former outcome
        return [data, xml, page]
    write_pdf(page, printed)
    return [data, xml, page, printed]
