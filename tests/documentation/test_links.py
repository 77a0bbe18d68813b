"""Links and anchors of the README and of the documentation lead somewhere, on a forge as well as in the site."""

import re
from functools import cache
from pathlib import Path

import pytest

from ..conftest import PROJECT
from .pages import DOCS, README, pages, prose

LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what headings of a page can be linked by."""
    headings = re.findall(r"^#{1,6} (.*)$", prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page):
    for link in LINK.findall(prose(page)):
        if re.match(r"\w+:", link):
            assert link.startswith("https://"), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists() and PROJECT in target.parents, link
        assert not anchor or anchor in anchors(target), link
        # The site holds no other pages.
        assert page == README or target.suffix != ".md" or target in pages(), link


def test_every_page_is_in_a_table_of_contents_once():
    listed = list(pages()[1:])
    there = [page for page in DOCS.rglob("*.md") if not {"_build", "api"} & {*page.relative_to(DOCS).parts}]
    assert sorted(listed) == sorted(there)


def test_the_readme_is_for_a_first_visitor():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 200


def test_pages_name_no_heading_of_the_readme_that_is_gone():
    for path in [*(PROJECT / "openmm_density").rglob("*.py"), *(PROJECT / "kernels").rglob("*.py")]:
        assert "README" not in path.read_text(encoding="utf-8"), path
