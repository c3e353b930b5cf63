"""The screenshots in the README and docs, from real runs.

    vflops run image-classification --profile laptop
    python benchmarks/pictures.py runs/2026…-image-classification-… [--submissions DIR]

Writes ``report.png`` and ``report-dark-phone.png`` of the run's report, and with a folder of runs
``ranking.png`` and ``ranking-2020.png`` of their ranking and of the 2020 list, in
``docs/pictures``. Needs Chromium.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from vflops.publish.ranking.static_site import build
from vflops.record.folder import RunFolder

HERE = Path(__file__).resolve().parent.parent
MOST_BYTES = 250_000
"""The maximum size of a picture, since every clone fetches all of them."""


@dataclass(frozen=True)
class Shot:
    """A screenshot of a page."""

    name: str
    width: int
    height: int
    dark: bool = False
    state: str = ""
    """The state of the page: the part of its URL after ``#``."""


REPORT = Shot("report.png", 1200, 1050), Shot("report-dark-phone.png", 390, 844, dark=True)
RANKING = (
    Shot("ranking.png", 1200, 900),
    Shot("ranking-2020.png", 1200, 640, state="view=published"),
)


def take(page: Path, shots: tuple[Shot, ...], into: Path) -> None:
    """Write screenshots of the top of ``page``."""
    from tests.support.browser import Browser

    with Browser() as browser:
        for shot in shots:
            address = f"{page.as_uri()}#{shot.state}"
            tab = browser.open(address, width=shot.width, height=shot.height, dark=shot.dark)
            tab.run("document.documentElement.style.overflow = 'hidden'")  # no scroll bar
            tab.run("new Promise(done => setTimeout(done, 1000))")  # charts are drawn
            if tab.errors:
                raise SystemExit(f"{page} has errors: {tab.errors}")
            path = into / shot.name
            tab.picture(path)
            shrink(path)
            print(f"{path}: {path.stat().st_size} bytes")


def shrink(path: Path) -> None:
    """The same picture in 256 colours: a third of the bytes, and no eye sees it."""
    with Image.open(path) as image:
        small = image.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size} bytes, at most {MOST_BYTES} are wanted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("run", type=Path, help="a finished run folder")
    parser.add_argument("--submissions", type=Path, help="a folder of runs to rank")
    parser.add_argument("--into", type=Path, default=HERE / "docs" / "pictures")
    options = parser.parse_args()
    take(RunFolder.open(options.run.resolve()).report_file, REPORT, options.into)
    if options.submissions:
        with TemporaryDirectory() as site:
            take(build([options.submissions], Path(site)).index, RANKING, options.into)


if __name__ == "__main__":
    main()
