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
_MAX_LIBRARY_BYTES = 1 << 24
LIBRARY_SHA256 = {
    ("6.4", "1.9.0.post1"): "3425bd951a44d478d0505c6b5d1e8d57656b6e9a4da7bfe88a718ce61d76e572",
}
"""The hash of the chart library, by the versions of Vega-Lite and of vl-convert-python.

With other versions, every process that writes a page bundles the library again.
"""


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

    Bundling it takes seconds, so it is cached on disk if its hash is known. A cached script with
    another hash, which others may have put there, is replaced.
    """
    import vl_convert

    version, bundler = library_versions()
    sha256 = LIBRARY_SHA256.get((version, bundler))

    def bundle() -> str:
        options = {"vl_version": version}  # without a snippet, the bundle sets window.vegaEmbed
        script: str = vl_convert.javascript_bundle(**options)
        return script.replace("</script", "<\\/script")

    if sha256 is None:
        return bundle()

    def make(folder: Path) -> None:
        atomic.make_folder(folder)
        atomic.write_text(folder / _LIBRARY, bundle())

    try:
        cached = cached_folder(f"charts-{version}-by-{bundler}", make) / _LIBRARY
        script = _read_script(cached, sha256)
        if script is None:
            script = bundle()
            atomic.write_text(cached, script)
        return script
    except (VflopsError, OSError):
        return bundle()


def library_versions() -> tuple[str, str]:
    """Return the versions of Vega-Lite and of the package that bundles it."""
    import altair

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    try:
        return version, metadata.version("vl-convert-python")
    except metadata.PackageNotFoundError:
        return version, "unknown"


def _read_script(path: Path, sha256: str) -> str | None:
    """Return the script in a file; None if it is not the one with this hash."""
    if not path.is_file() or path.stat().st_size > _MAX_LIBRARY_BYTES:
        return None
    data = path.read_bytes()
    return data.decode() if hashlib.sha256(data).hexdigest() == sha256 else None


def _words(command: str) -> Any:
    """Return a command line whose words are not broken at their hyphens."""
    from markupsafe import Markup

    word = Markup("<span>{}</span>")
    return Markup(" ").join(word.format(_escape_controls(text)) for text in command.split(" "))


def _sentence(text: str) -> str:
    """Return ``text`` as a sentence without its full stop; names of files and workloads stay."""
    is_word = text.partition(" ")[0].isalpha()
    return (text[:1].upper() + text[1:] if is_word else text).rstrip(".")


def _specification(chart: dict[str, Any]) -> Any:
    from markupsafe import Markup

    return Markup(json.dumps(chart).replace("<", "\\u003c"))  # so that no tag can end the script
