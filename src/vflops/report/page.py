"""Pages from templates, with charts that need no network."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from vflops import __version__, units
from vflops.system.words import shown


def render(template: str, **context: Any) -> str:
    """The page that ``template`` makes of ``context``; text is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("vflops.report"),
        autoescape=True,
        undefined=StrictUndefined,
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
    return environment.get_template(template).render(version=__version__, **context)


@cache
def chart_library() -> str:
    """The chart library as one script (0.9 MB), so that a page works offline."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    whole = {"vl_version": version}  # no snippet: the bundle that sets window.vegaEmbed
    script = vl_convert.javascript_bundle(**whole)
    return script.replace("</script", "<\\/script")


def _spec(chart: dict[str, Any]) -> Any:
    from markupsafe import Markup

    return Markup(json.dumps(chart).replace("<", "\\u003c"))  # no tag can end the script
