"""``acceptance.html``: two printed pages with promises, measurements and lines for signatures."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vflops.errors import RunFailed, UsageError
from vflops.publish.pages.page import render
from vflops.record.files import atomic
from vflops.studies.accept import accept_text
from vflops.studies.accept.acceptance import Acceptance, JudgedFigure

_MAX_ROWS, _MAX_REMARKS, _MAX_PLACES, _MAX_RUNS = 22, 8, 10, 6
"""The largest numbers of rows, so that the page prints on two sheets."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PRINT_S = 120.0


class PlaceRow(NamedTuple):
    """A node, or a part of one, with the number of its figures by verdict."""

    place: str
    accepted: int
    rejected: int
    undecided: int


def write_page(
    acceptance: Acceptance, path: Path, *, judged_utc: str, reference_sha256: str | None = None
) -> None:
    """Write the page; it works offline and prints on two sheets of A4.

    ``reference_sha256`` is the hash of the reference's file, if it is a file.
    """
    figures = accept_text.in_order(_worst_per_figure(acceptance.figures))
    places = _places(acceptance)
    page = render(
        "acceptance.html",
        title=f"Acceptance test: {acceptance.reference.name}",
        test=acceptance,
        words=accept_text,
        figures=figures[:_MAX_ROWS],
        left_out=accept_text.left_out(figures[_MAX_ROWS:]),
        places=places[:_MAX_PLACES],
        more_places=_more_places(places[_MAX_PLACES:]),
        remarks=accept_text.cut(list(accept_text.remarks(acceptance)), _MAX_REMARKS),
        runs=acceptance.runs[:_MAX_RUNS],
        more_runs=max(len(acceptance.runs) - _MAX_RUNS, 0),
        reference_sha256=reference_sha256,
        judged_utc=judged_utc,
    )
    atomic.write_text(path, page)


def write_pdf(page: Path, pdf: Path) -> None:
    """Print ``page`` to ``pdf`` with an installed browser, or raise ``UsageError``."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise UsageError(
            f"--pdf needs a browser, and none of {', '.join(_BROWSERS)} is on PATH",
            hint=f"install chromium, or open {page} in a browser and print it",
        )
    with tempfile.TemporaryDirectory(prefix="vflops-print-") as profile:
        printed = Path(profile) / "page.pdf"
        command = [
            browser,
            "--headless=new",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-pdf-header-footer",
            f"--user-data-dir={profile}/profile",
            f"--print-to-pdf={printed}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),  # Chromium refuses root otherwise
            page.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_PRINT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise RunFailed(
                f"{browser} did not print {page} within {_PRINT_S:.0f} s",
                hint="open the page in a browser and print it",
            ) from error
        if not printed.is_file():
            last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
            raise RunFailed(
                f"{browser} did not print {page}: {last}",
                hint="open the page in a browser and print it",
            )
        atomic.write_bytes(pdf, printed.read_bytes())


def _worst_per_figure(figures: Sequence[JudgedFigure]) -> list[JudgedFigure]:
    """Return each figure once: on the node with the worst verdict, then with the worst value."""
    by_name: dict[str, list[JudgedFigure]] = {}
    for figure in accept_text.in_order(figures):
        by_name.setdefault(figure.name, []).append(figure)
    worst = []
    for name in dict.fromkeys(item.name for item in figures):
        first = [item for item in by_name[name] if item.verdict == by_name[name][0].verdict]
        choose = min if first[0].better == "higher" else max
        worst.append(choose(first, key=lambda item: item.mean or 0.0))
    return worst


def _places(acceptance: Acceptance) -> list[PlaceRow]:
    """Return how many figures of each node have which verdict; the worst nodes come first."""
    verdicts: dict[str, Counter[str]] = {}
    for figure in acceptance.figures:
        if figure.place is not None:
            verdicts.setdefault(figure.place, Counter())[figure.verdict] += 1
    rows = [
        PlaceRow(place, counts["accepted"], counts["rejected"], counts["undecided"])
        for place, counts in verdicts.items()
    ]
    return sorted(rows, key=lambda row: (-row.rejected, -row.undecided, row.place))


def _more_places(rows: Sequence[PlaceRow]) -> str:
    """Return how many nodes the page leaves out, and how many of them have rejected figures."""
    if not rows:
        return ""
    rejected = sum(row.rejected > 0 for row in rows)
    return f"{len(rows)} more nodes are not shown; {rejected} of them have rejected figures."
