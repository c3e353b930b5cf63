"""The pages of the site: one file each, which needs neither a server nor a network.

The content security policy of a page allows only its own style and script, by their hashes: no
eval, no handlers in attributes, no requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vflops import __version__, units
from vflops.publish.ranking.lists import FACETS, Ranked, Ranking, Unranked, system_id
from vflops.publish.ranking.ranking2020 import EXPONENT, RANKING_2020, TARGET

if TYPE_CHECKING:
    from jinja2 import Template

SCRIPTS = ("columns.js", "picture.js", "ranking.js")
UNSIGNED = "unsigned"
_MOST_ROWS = 500
"""The most results on the page of a system."""


def index_page(ranking: Ranking) -> str:
    """Return the page with all lists."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    return _page(
        "index.html",
        script=f'"use strict";\n(() => {{\n{script}}})();\n',
        data=json_in_page(_data(ranking)),
        apart=len(ranking.unranked),
        published=RANKING_2020,
        exponent=EXPONENT,
        target=TARGET,
    )


def system_page(ranked: Sequence[Ranked], apart: Sequence[Unranked]) -> str:
    """Return the page of one system: its facts, and everything that was submitted for it."""
    entries = [*(row.entry for row in ranked), *(row.entry for row in apart)]
    newest = max(entries, key=lambda entry: entry.day or "")
    latest = sorted(ranked, key=lambda row: row.entry.day or "", reverse=True)
    return _page(
        "system.html",
        script="",
        system=newest.system,
        source=newest.source or UNSIGNED,
        facts=newest.facts,
        ranked=[(row, link(row.facets)) for row in latest[:_MOST_ROWS]],
        apart=apart[:_MOST_ROWS],
        more=max(len(ranked), len(apart)) - _MOST_ROWS,
    )


@lru_cache(maxsize=1024)
def link(facets: tuple[str, ...]) -> str:
    """Return the URL fragment that selects one list."""
    pairs = zip(FACETS, facets, strict=True)
    return "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in pairs)


def json_in_page(data: object) -> str:
    """Return compact JSON in which no tag can end the surrounding script."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _data(ranking: Ranking) -> dict[str, Any]:
    """Return the rows as columns: half the size, and faster to sort."""
    ranked, apart = ranking.ranked, ranking.unranked
    lists = {
        facets: number for number, facets in enumerate(dict.fromkeys(r.facets for r in ranked))
    }
    units_of = {row.facets: row.result.unit for row in ranked}
    entries, results = [row.entry for row in ranked], [row.result for row in ranked]
    return {
        "facets": FACETS,
        "lists": [{"values": facets, "unit": units_of[facets]} for facets in lists],
        "rows": {
            "list": [lists[row.facets] for row in ranked],
            "rank": [row.rank for row in ranked],
            "source": _words([entry.source or UNSIGNED for entry in entries]),
            "system": _words([entry.system for entry in entries]),
            "page": _words([system_id(entry) for entry in entries]),
            "score": [_short(result.score) for result in results],
            "time_s": [_short(result.time_s) for result in results],
            "to_target_s": [_short(result.to_target_s) for result in results],
            "quality": [_short(result.quality, 4) for result in results],
            "ranks": [result.ranks for result in results],
            "accelerators": [result.accelerators for result in results],
            "device": _words([result.device for result in results]),
            "framework": _words([entry.framework for entry in entries]),
            "per_watt": [_short(result.per_watt) for result in results],
            "efficiency": [_short(result.efficiency) for result in results],
            "tally": _words([entry.tally for entry in entries]),
            "signed": [int(entry.signer is not None) for entry in entries],
            "repeats": [result.repeats for result in results],
            "day": _words([entry.day or "" for entry in entries]),
            "run": [entry.run for entry in entries],
        },
        "apart": {
            "source": _words([row.entry.source or UNSIGNED for row in apart]),
            "system": _words([row.entry.system for row in apart]),
            "page": _words([system_id(row.entry) if row.entry.system else "" for row in apart]),
            "workload": _words([row.workload for row in apart]),
            "day": _words([row.entry.day or "" for row in apart]),
            "place": [row.entry.place for row in apart],
            "reason": _words(["; ".join(row.reasons) for row in apart]),
        },
    }


def _words(values: Sequence[str]) -> dict[str, list[Any]]:
    """Return a column of words with each word stored once."""
    known: dict[str, int] = {}
    at = [known.setdefault(value, len(known)) for value in values]
    return {"words": list(known), "at": at}


def _short(value: float | None, digits: int = 5) -> float | None:
    """Return ``value`` rounded to a few digits, to keep the page small."""
    return None if value is None else float(f"{value:.{digits}g}")


def _page(name: str, *, script: str, **context: Any) -> str:
    from markupsafe import Markup

    style = _asset("ranking.css")
    policy = _policy(style, script)
    if "data" in context:
        context["data"] = Markup(context["data"])
    return _template(name).render(
        policy=Markup(policy), style=Markup(style), script=Markup(script), **context
    )


@lru_cache(maxsize=2)
def _policy(style: str, script: str) -> str:
    sources = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; {sources}style-src '{_hash(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _template(name: str) -> Template:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("vflops.publish.ranking"), PackageLoader("vflops.publish.pages")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,  # else every page checks whether its templates changed
    )
    environment.filters.update(
        quantity=units.quantity, percent=units.percent, seconds=units.seconds, short=_short
    )
    environment.globals["version"] = __version__
    return environment.get_template(name)


@cache
def _asset(name: str) -> str:
    return (files("vflops.publish.ranking") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
