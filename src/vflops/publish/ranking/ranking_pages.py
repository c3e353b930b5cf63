"""The pages of the ranking site; each is one file that needs neither a server nor a network.

The content security policy of a page allows only its own style and script, by their hashes: no
eval, no handlers in attributes, no requests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vflops import __version__, units
from vflops.publish.ranking.audit_files import UnusableAudit
from vflops.publish.ranking.entry import Entry
from vflops.publish.ranking.entry_audits import EntryAudit
from vflops.publish.ranking.lists import (
    ENERGY_FACETS,
    FACETS,
    Ranked,
    Ranking,
    Unranked,
    system_id,
)
from vflops.publish.ranking.power_evidence import MIN_COVERED
from vflops.publish.ranking.ranking2020 import EXPONENT, RANKING_2020, TARGET

if TYPE_CHECKING:
    from jinja2 import Template

SCRIPTS = ("columns.js", "picture.js", "ranking.js")
UNSIGNED = "unsigned"
_MAX_ROWS = 500
"""The maximum number of results in a table of a system's page."""


def index_page(
    ranking: Ranking, energy: Ranking, unusable_audits: Sequence[UnusableAudit] = ()
) -> str:
    """Return the page with all lists, by performance and by energy."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    return _page(
        "index.html",
        script=f'"use strict";\n(() => {{\n{script}}})();\n',
        data=json_in_page(_page_data(ranking, energy)),
        unranked=len(ranking.unranked),
        disputes=ranking.disputes,
        unusable_audits=unusable_audits[:_MAX_ROWS],
        more_audits=len(unusable_audits) - _MAX_ROWS,
        min_covered=MIN_COVERED,
        published=RANKING_2020,
        exponent=EXPONENT,
        target=TARGET,
    )


def system_page(
    ranked: Sequence[Ranked], unranked: Sequence[Unranked], energy_ranks: Mapping[int, int]
) -> str:
    """Return the page of one system, with its facts and all its submissions.

    ``energy_ranks`` are the ranks by energy, by the ``id()`` of the result.
    """
    entries = [*(row.entry for row in ranked), *(row.entry for row in unranked)]
    newest = max(entries, key=lambda entry: entry.day or "")
    latest = sorted(ranked, key=lambda row: row.entry.day or "", reverse=True)
    return _page(
        "system.html",
        script="",
        system=newest.system,
        source=newest.source or UNSIGNED,
        facts=newest.facts,
        ranked=[
            (row, list_link(row.facets), energy_ranks.get(id(row.result)))
            for row in latest[:_MAX_ROWS]
        ],
        unranked=unranked[:_MAX_ROWS],
        audits=_audits(entries)[:_MAX_ROWS],
        more=max(len(ranked), len(unranked)) - _MAX_ROWS,
    )


def _audits(entries: Sequence[Entry]) -> list[tuple[Entry, EntryAudit]]:
    """Return the audits of all entries, each once although an entry may have several results."""
    unique = {id(entry): entry for entry in entries if entry.audited}.values()
    return [(entry, audit) for entry in unique if entry.audited for audit in entry.audited.audits]


@lru_cache(maxsize=1024)
def list_link(facets: tuple[str, ...]) -> str:
    """Return the URL fragment that selects one list."""
    pairs = zip(FACETS, facets, strict=True)
    return "&".join(f"{quote(name)}={quote(value, safe='')}" for name, value in pairs)


def json_in_page(data: object) -> str:
    """Return compact JSON in which no tag can end the surrounding script."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _page_data(ranking: Ranking, energy: Ranking) -> dict[str, Any]:
    """Return the rows of the lists as columns, which halves the size and is faster to sort."""
    ranked, unranked = ranking.ranked, ranking.unranked
    lists, energy_lists = _list_numbers(ranked), _list_numbers(energy.ranked)
    by_energy = {id(row.result): row for row in energy.ranked}
    energy_rows = [by_energy.get(id(row.result)) for row in ranked]
    entries, results = [row.entry for row in ranked], [row.result for row in ranked]
    return {
        "facets": FACETS,
        "lists": _list_data(ranked),
        "energy_facets": ENERGY_FACETS,
        "energy_lists": _list_data(energy.ranked),
        "rows": {
            "list": [lists[row.facets] for row in ranked],
            "rank": [row.rank for row in ranked],
            "source": _string_column([entry.source or UNSIGNED for entry in entries]),
            "system": _string_column([entry.system for entry in entries]),
            "page": _string_column([system_id(entry) for entry in entries]),
            "score": [_rounded(result.score) for result in results],
            "published": [_rounded(result.published) for result in results],
            "time_s": [_rounded(result.time_s) for result in results],
            "to_target_s": [_rounded(result.to_target_s) for result in results],
            "quality": [_rounded(result.quality, 4) for result in results],
            "regulated": [_rounded(result.regulated) for result in results],
            "ranks": [result.ranks for result in results],
            "nodes": [result.nodes for result in results],
            "accelerators": [result.accelerators for result in results],
            "device": _string_column([result.device for result in results]),
            "framework": _string_column([entry.framework for entry in entries]),
            "per_watt": [_rounded(result.per_watt) for result in results],
            "energy_list": [row and energy_lists[row.facets] for row in energy_rows],
            "energy_rank": [row and row.rank for row in energy_rows],
            "power_w": [_rounded(result.power.power_w) for result in results],
            "method": _string_column([result.power.method for result in results]),
            "no_energy": _string_column([result.no_energy_reason or "" for result in results]),
            "efficiency": [_rounded(result.efficiency) for result in results],
            "tally": _string_column([entry.tally for entry in entries]),
            "signed": [int(entry.signer is not None) for entry in entries],
            "challenge": _string_column(
                [entry.challenge.text if entry.challenge else "" for entry in entries]
            ),
            "audit": _string_column(
                [entry.audited.text if entry.audited else "" for entry in entries]
            ),
            "repeats": [result.repeats for result in results],
            "day": _string_column([entry.day or "" for entry in entries]),
            "run": [entry.run for entry in entries],
        },
        "apart": {
            "source": _string_column([row.entry.source or UNSIGNED for row in unranked]),
            "system": _string_column([row.entry.system for row in unranked]),
            "page": _string_column(
                [system_id(row.entry) if row.entry.system else "" for row in unranked]
            ),
            "workload": _string_column([row.workload for row in unranked]),
            "day": _string_column([row.entry.day or "" for row in unranked]),
            "place": [row.entry.place for row in unranked],
            "reason": _string_column(["; ".join(row.reasons) for row in unranked]),
        },
    }


def _list_numbers(ranked: Sequence[Ranked]) -> dict[tuple[str, ...], int]:
    """Return the lists of ``ranked`` in their order, with their numbers."""
    return {
        facets: number for number, facets in enumerate(dict.fromkeys(row.facets for row in ranked))
    }


def _list_data(ranked: Sequence[Ranked]) -> list[dict[str, Any]]:
    units_of = {row.facets: row.result.unit for row in ranked}
    return [{"values": facets, "unit": unit} for facets, unit in units_of.items()]


def _string_column(values: Sequence[str]) -> dict[str, list[Any]]:
    """Return a column of strings: each distinct string once, and an index for each row."""
    strings: dict[str, int] = {}
    indexes = [strings.setdefault(value, len(strings)) for value in values]
    return {"words": list(strings), "at": indexes}


def _rounded(value: float | None, digits: int = 5) -> float | None:
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
        auto_reload=False,  # otherwise every page checks whether its templates changed
    )
    environment.filters.update(
        quantity=units.quantity, percent=units.percent, seconds=units.seconds, short=_rounded
    )
    environment.globals["version"] = __version__
    return environment.get_template(name)


@cache
def _asset(name: str) -> str:
    return (files("vflops.publish.ranking") / "templates" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
