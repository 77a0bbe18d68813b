"""The README and the pages of the documentation, in the order in which they are read, and what they show."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..conftest import PROJECT

DOCS = PROJECT / "docs"
README = PROJECT / "README.md"


class Block(NamedTuple):
    """A fenced block of a page: ``language`` is what its fence names, such as "python" or "{code-cell}"."""

    page: str
    language: str
    text: str


@cache
def pages() -> tuple[Path, ...]:
    """Return the README, then the pages in the order of the tables of contents, which name each of them."""
    return (README, *_contents(DOCS / "index.md"))


def _contents(page: Path) -> list[Path]:
    """Return a page, and those that its tables of contents name."""
    found = [page]
    for block in blocks(page):
        if block.language == "{toctree}":
            names = [line for line in block.text.splitlines() if line and not line.startswith(":")]
            found += [each for name in names for each in _contents(page.parent / f"{name}.md")]
    return found


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page."""
    return [
        Block(str(page.relative_to(PROJECT)), found[2], found[3])
        for found in re.finditer(
            r"^(`{3,})([^\n`]*)\n(.*?)^\1`*$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    ]


def shown(language: str) -> list[Block]:
    """Return the blocks of one language in all pages, each text once."""
    found: dict[str, Block] = {}
    for page in pages():
        for block in blocks(page):
            if block.language == language:
                found.setdefault(block.text, block)
    return list(found.values())


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return re.sub(
        r"^(`{3,})[^\n`]*\n.*?^\1`*$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
