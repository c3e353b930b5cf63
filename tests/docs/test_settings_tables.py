"""The tables of settings in the documentation are those of the source."""

from __future__ import annotations

from tools.settings_tables import PAGE, page


def test_the_page_has_every_setting_with_the_values_of_its_profiles() -> None:
    text = PAGE.read_text()
    assert page(text) == text, "write it anew: python -m tools.settings_tables --write"
    assert "| `unreadable` | `fail` |" in text
