"""Pages from templates, with charts that need no network.

A content security policy allows a page its own scripts, by their hashes, and pictures within it:
no eval, no handler in an attribute, no request. Vega interprets its expressions instead.
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
from vflops.machine.system.fact_text import shown
from vflops.publish.pages.chart_style import DARK
from vflops.record.files import atomic
from vflops.record.files.cache import made_once
from vflops.text import printable

if TYPE_CHECKING:
    from jinja2 import Environment

_LIBRARY = "library.js"


def _harmless(value: object) -> object:
    """What a record holds, with signs that turn text round or hide it written out."""
    return printable(value, keep="\n\t") if type(value) is str else value


def render(template: str, *, folder: Path | None = None, **context: Any) -> str:
    """Return the page that ``template`` makes of ``context``, with text escaped.

    Pass ``library``, the script that draws charts, for a page with charts. ``folder`` holds
    templates that extend those of this package.
    """
    from markupsafe import Markup

    library = context.pop("library", None)
    scripts = [Markup(each) for each in (library, _script("page.js"))] if library else []
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
    """The content security policy of a page with these scripts in it."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts) or "'none'"
    # Vega places what it draws by styles of its own.
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
    """Return an environment with the templates of this package, and of ``folder`` if given."""
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined

    extra = [] if folder is None else [FileSystemLoader(folder)]
    environment = Environment(
        loader=ChoiceLoader([*extra, PackageLoader("vflops.publish.pages")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        quantity=units.quantity,
        integer=units.integer,
        percent=units.percent,
        seconds=units.seconds,
        spec=_spec,
        fact=shown,
    )
    return environment


@cache
def chart_library() -> str:
    """The chart library as one script (0.9 MB), so that a page works offline.

    Making it takes seconds: it is kept in the cache, where one can be written.
    """
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])

    def bundle() -> str:
        whole = {"vl_version": version}  # no snippet: the bundle that sets window.vegaEmbed
        script: str = vl_convert.javascript_bundle(**whole)
        return script.replace("</script", "<\\/script")

    def make(place: Path) -> None:
        atomic.make_folder(place)
        atomic.write_text(place / _LIBRARY, bundle())

    try:
        kept = made_once(f"charts-{version}-by-{metadata.version('vl-convert-python')}", make)
        return (kept / _LIBRARY).read_text(encoding="utf-8")
    except (VflopsError, OSError, metadata.PackageNotFoundError):
        return bundle()


def _spec(chart: dict[str, Any]) -> Any:
    from markupsafe import Markup

    return Markup(json.dumps(chart).replace("<", "\\u003c"))  # no tag can end the script
