"""The citation and the changelog are of the package's version; ``make docs`` validates CITATION.cff against its schema."""

import re

from openmm_density import __version__

from ..conftest import PROJECT

CITATION = (PROJECT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_changelog_begins_with_this_version():
    changelog = (PROJECT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+?)(,|$)", changelog, re.MULTILINE)[1] == __version__
