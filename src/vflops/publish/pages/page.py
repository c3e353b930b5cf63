"""Rendering of HTML pages from templates, with charts that need no network.

The content security policy of a page allows only its own scripts, by their hashes, and embedded
images: no eval, no handlers in attributes, no requests. Vega interprets its expressions instead.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vflops import __version__, units
from vflops.errors import VflopsError
from vflops.machine.system.fact_text import format_fact
from vflops.publish.pages.chart_style import DARK
from vflops.record.files import atomic
from vflops.record.files.cache import cached_folder
from vflops.results.check.advice import advice
from vflops.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_LIBRARY = "library.js"


def _escape_controls(value: object) -> object:
    """Return text with control and bidirectional characters escaped, so that it cannot mislead."""
    return printable(value, keep="\n\t") if type(value) is str else value


def render(template: str, *, folder: Path | None = None, **context: Any) -> str:
    """Return ``template`` rendered with ``context``; text is escaped.

    A page with charts needs ``library``, the script of `chart_library`. ``folder`` holds
    additional templates, which may extend those of this package.
    """
    from markupsafe import Markup

    library = context.pop("library", None)
    scripts = [Markup(text) for text in (library, _script("page.js"))] if library else []
    return (
        templates(folder)
        .get_template(template)
        .render(
            version=__version__,
            policy=Markup(policy(*scripts)),
            scripts=scripts,
            dark=DARK,
            **context,
        )
    )


def policy(*scripts: str) -> str:
    """Return the content security policy of a page with these scripts."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts) or "'none'"
    # Vega positions its elements with inline styles.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def _script(name: str) -> str:
    return (files("vflops.publish.pages") / "templates" / name).read_text(encoding="utf-8")


@cache
def templates(folder: Path | None = None) -> Environment:
    """Return a Jinja environment with the templates of this package and of ``folder``."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

    extra = [] if folder is None else [FileSystemLoader(folder)]
    environment = Environment(
        loader=ChoiceLoader([*extra, PackageLoader("vflops.publish.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escape_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        quantity=units.quantity,
        integer=units.integer,
        percent=units.percent,
        seconds=units.seconds,
        spec=_specification,
        fact=format_fact,
        sentence=_sentence,
        words=_words,
        advice=advice,
    )
    return environment


@cache
def chart_library() -> str:
    """Return the chart library as one script (0.9 MB), so that a page works offline.

    Bundling it takes seconds, so it is cached on disk if possible.
    """
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

    def bundle() -> str:
        options = {"vl_version": version}  # without a snippet, the bundle sets window.vegaEmbed
        script: str = vl_convert.javascript_bundle(**options)
        return script.replace("</script", "<\\/script")

    def make(folder: Path) -> None:
        atomic.make_folder(folder)
        atomic.write_text(folder / _LIBRARY, bundle())

    try:
        cached = cached_folder(f"charts-{version}-by-{metadata.version('vl-convert-python')}", make)
        return (cached / _LIBRARY).read_text(encoding="utf-8")
    except (VflopsError, OSError, metadata.PackageNotFoundError):
        return bundle()


def _words(command: str) -> Any:
    """Return a command line whose words are not broken at their hyphens."""
    from markupsafe import Markup

    word = Markup("<span>{}</span>")
    return Markup(" ").join(word.format(_escape_controls(text)) for text in command.split(" "))


def _sentence(text: str) -> str:
    """Return ``text`` as a sentence without its full stop."""
    return text[:1].upper() + text[1:].rstrip(".")


def _specification(chart: dict[str, Any]) -> Any:
    from markupsafe import Markup

    return Markup(json.dumps(chart).replace("<", "\\u003c"))  # so that no tag can end the script
