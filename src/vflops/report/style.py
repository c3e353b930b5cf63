"""How all charts look; altair is imported where it draws."""

from __future__ import annotations

from typing import Any

COLOURS = {
    "fp64": "#6b4c9a",
    "fp32": "#2f6fb0",
    "tf32": "#1b9e9e",
    "bf16": "#2e8b3d",
    "fp16": "#c77d11",
    "fp8": "#c2333f",
}
"""Of the precisions."""
SERIES = ("#2f6fb0", "#c77d11", "#2e8b3d", "#6b4c9a", "#1b9e9e", "#c2333f", "#8c6d31", "#7f7f7f")
"""Of what has no colour of its own, in the order in which it comes."""
ACHIEVED = "#c2333f"
"""Of what a training reached."""


def finished(chart: Any) -> dict[str, Any]:
    """The specification of ``chart``, styled like all others."""
    font = "system-ui, sans-serif"
    styled = chart.configure(font=font, background="white").configure_view(stroke="#ccc")
    specification: dict[str, Any] = styled.configure_axis(labelColor="#444").to_dict()
    return specification


def data(rows: list[dict[str, Any]]) -> Any:
    """``rows`` as altair takes them, inside the specification."""
    import altair as alt

    return alt.Data(values=rows)
