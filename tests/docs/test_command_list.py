"""The command reference and the README name the commands that there are."""

from __future__ import annotations

import re

from tests.support.paths import DOCS, ROOT
from vflops.cli import COMMANDS

GROUPS = ("measure", "train", "cluster", "results", "publish")


def test_the_reference_lists_every_command_in_its_group() -> None:
    text = (DOCS / "reference" / "commands.md").read_text(encoding="utf-8")
    listed = {
        section.split("\n", 1)[0].lower(): set(re.findall(r"^\| `vflops (\w+)`", section, re.M))
        for section in text.split("\n## ")[1:]
    }
    real: dict[str, set[str]] = {group: set() for group in GROUPS}
    for module, names in COMMANDS.items():
        real[module.split(".")[0]].update(names)
    assert listed == real


def test_the_readme_is_short_and_starts_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 130
    first_screen = "\n".join(lines[:40])
    assert "make run" in first_screen and "make test" in first_screen
    commands = re.findall(r"^\| `vflops (\w+)", "\n".join(lines), re.M)
    assert len(commands) == 6
