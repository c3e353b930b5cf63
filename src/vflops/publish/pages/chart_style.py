"""The style that all charts share, on light and dark pages; altair is imported when needed."""

from __future__ import annotations

from typing import Any

COLOURS = {
    "fp64": "#6b4c9a",
    "fp32": "#2f6fb0",
    "tf32": "#1b9e9e",
    "bf16": "#2e8b3d",
    "fp16": "#c77d11",
    "fp8": "#c2333f",
    "int8": "#8c6d31",
}
"""The colours of precisions."""
SERIES = ("#2f6fb0", "#c77d11", "#2e8b3d", "#6b4c9a", "#1b9e9e", "#c2333f", "#8c6d31", "#7f7f7f")
"""The colours of series in order of appearance."""
ACHIEVED = "#c2333f"
"""The colour that marks what a training run achieved."""

DARK = {
    "#2f6fb0": "#6ea8e0",
    "#c77d11": "#e0a24a",
    "#2e8b3d": "#6cc47a",
    "#6b4c9a": "#b096e0",
    "#1b9e9e": "#56c8c8",
    "#c2333f": "#f0828a",
    "#8c6d31": "#c9a96a",
    "#7f7f7f": "#a6acb5",
    "#9aa3af": "#8a94a2",
    "#b6bec9": "#4a5361",
    "#b97f00": "#ffbf3f",
    "#c92a2a": "#ff6257",
    "#7b3fb5": "#d5a6ff",
    "#2f9e2f": "#8cf06b",
    **dict.fromkeys(("#000", "#000000", "black", "#111", "#222", "#333"), "#e4e7ec"),
    **dict.fromkeys(("#444", "#555", "#666"), "#aeb6c2"),
    "#888": "#59626f",
    "#ccc": "#343b46",
    "#ddd": "#2c323b",
}
"""The colour on a dark page for each colour of a chart.

Charts are printed and saved in their light colours. On screen, the style sheet of the page
replaces the colours, so that switching the colour scheme needs no script.
"""


_CONFIG: dict[str, Any] = {
    "background": "white",
    "font": "system-ui, sans-serif",
    "view": {"stroke": "#ccc"},
    "axis": {"labelColor": "#444", "titleColor": "#444", "titleFontWeight": 500},
}
"""The Vega-Lite configuration that all charts share."""


def apply_style(chart: Any) -> dict[str, Any]:
    """Return the Vega-Lite specification of an altair ``chart`` in the common style."""
    return with_style(specification_of(chart))


def specification_of(chart: Any) -> dict[str, Any]:
    """Return the Vega-Lite specification of an altair ``chart``.

    altair does not check it against the schema of Vega-Lite here, which takes a third of the time
    of a page. In the tests it does.
    """
    specification: dict[str, Any] = chart.to_dict(validate=False)
    return specification


def with_style(specification: dict[str, Any]) -> dict[str, Any]:
    """Return a Vega-Lite specification in the common style; its own settings take precedence."""
    config = {**_CONFIG}
    for key, value in specification.get("config", {}).items():
        shared = config.get(key)
        if isinstance(shared, dict) and isinstance(value, dict):
            config[key] = {**shared, **value}
        else:
            config[key] = value
    return {**specification, "config": config}


def data(rows: list[dict[str, Any]]) -> Any:
    """Return ``rows`` as inline altair data, which is validated with the chart and not before."""
    import altair as alt
    from altair.utils.schemapi import debug_mode

    with debug_mode(False):
        return alt.Data(values=rows)


def tooltips(*fields: str) -> list[Any]:
    """Return the tooltips of fields such as ``"seed:N"``.

    Of a string, altair would find the class of the channel by hashing all its schemas, which takes
    longer than all the rest of a chart. So charts name the classes of their channels.
    """
    import altair as alt

    return [alt.Tooltip(field) for field in fields]
