"""The documentation as data: pages, fenced blocks, commands, links and anchors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import DOCS, ROOT

SHELLS = ("bash", "console", "sh")
"""Languages of fenced blocks that hold commands."""
_FENCE = re.compile(r"^( *)```(\w*)")
_REASON = re.compile(r"<!-- not run: (.+) -->")
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")


def pages() -> list[Path]:
    """Every Markdown page of the repository that a reader meets."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [*own, *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]


def name_of(page: Path) -> str:
    """The path of a page from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


@dataclass(frozen=True)
class Fence:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    reason: str | None
    """Why its commands are not run; None if they are."""


def fences(page: Path) -> list[Fence]:
    """Return the fenced blocks of a page."""
    blocks: list[Fence] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        opening = _FENCE.match(lines[number])
        if not opening:
            number += 1
            continue
        indent = opening[1]
        end = lines.index(f"{indent}```", number + 1)
        text = "\n".join(line.removeprefix(indent) for line in lines[number + 1 : end])
        reason = _REASON.search(lines[number - 1]) if number else None
        blocks.append(Fence(page, number + 1, opening[2], text, reason and reason[1]))
        number = end + 1
    return blocks


@dataclass(frozen=True)
class Command:
    """A command line of a page, as words."""

    fence: Fence
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{name_of(self.fence.page)}:{self.fence.line}: {shlex.join(self.words)}"


def commands() -> Iterator[Command]:
    """Yield every command of every shell block, in order."""
    for page in pages():
        for fence in fences(page):
            if fence.language not in SHELLS:
                continue
            lines = fence.text.replace("\\\n", " ").splitlines()
            if fence.language == "console":  # the rest is output
                lines = [line[2:] for line in lines if line.startswith("$ ")]
            for line in lines:
                for part in line.split("&&"):
                    if words := shlex.split(part, comments=True):
                        yield Command(fence, tuple(words))


def prose(page: Path) -> str:
    """Return the text of a page without its fenced blocks and HTML comments."""
    kept, inside = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        if _FENCE.match(line):
            inside = not inside
        elif not inside:
            kept.append(line)
    return _COMMENT.sub("", "\n".join(kept))


def inline_code(page: Path) -> list[str]:
    """Return the inline code of a page."""
    return _CODE.findall(prose(page))


def links(page: Path) -> list[str]:
    """Return the targets of the links and images of a page."""
    return _LINK.findall(_CODE.sub("", prose(page)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {_slug(heading) for heading in headings}


def _slug(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
